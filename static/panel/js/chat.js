// The playground: keys of the composer, words of a refusal, and a page that follows the answer.
(function () {
  'use strict'

  const NEAR = 80 // pixels from the end within which the page counts as following
  const composer = document.getElementById('composer')
  const prompt = document.getElementById('prompt')
  const status = document.getElementById('turn-status')
  const root = document.scrollingElement
  let following = true

  function toEnd() {
    // At once: the style sheet's smooth scrolling would still be on its way when the next text comes.
    root.scrollTo({ top: root.scrollHeight, behavior: 'instant' })
  }

  document.addEventListener('scroll', () => {
    following = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR
  }, { passive: true })

  prompt.addEventListener('keydown', (event) => {
    // Enter also ends a word in an input method (Chinese, Japanese); then it must not send.
    if (event.key !== 'Enter' || event.shiftKey || event.altKey || event.isComposing) return
    event.preventDefault()
    composer.requestSubmit()
  })

  document.addEventListener('htmx:beforeSwap', (event) => {
    if (event.detail.xhr.status !== 422) return
    event.detail.shouldSwap = true
    event.detail.isError = false
  })

  composer.addEventListener('htmx:afterRequest', (event) => {
    if (event.detail.elt !== composer || !event.detail.xhr || event.detail.xhr.status >= 400) return
    document.getElementById('composer-error').replaceChildren()
    prompt.value = ''
    prompt.focus()
    following = true
    toEnd()
  })

  document.addEventListener('htmx:sseMessage', () => {
    if (following) toEnd()
  })

  document.addEventListener('htmx:afterSwap', (event) => {
    const turn = event.target
    if (!turn.matches || !turn.matches('.turn')) return
    if (turn.querySelector('[sse-connect]')) return
    status.textContent = status.dataset.done
    // The button that had the focus (Stop) is gone with the streaming element.
    if (document.activeElement === document.body && !prompt.disabled) prompt.focus({ preventScroll: true })
    if (following) toEnd()
  })

  // A page out of the back/forward cache shows a turn whose stream was cut when it went in.
  window.addEventListener('pageshow', (event) => {
    if (event.persisted && document.querySelector('[sse-connect]')) window.location.reload()
  })

  // After the browser has put the focus into the composer, which may scroll by itself.
  window.addEventListener('load', () => {
    if (document.querySelector('.turn')) toEnd()
  })
})()
