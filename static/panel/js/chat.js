// The playground: keys of the composer, words of a refusal, reasoning folded as the reader likes it, copying code,
// and a page that follows the answer.
(function () {
  'use strict'

  const composer = document.getElementById('composer')
  const prompt = document.getElementById('prompt')
  const status = document.getElementById('turn-status')
  const root = document.scrollingElement
  const opened = new Map() // id of a turn -> whether its reasoning is unfolded
  let following = true
  let last = 0 // where the page was scrolled to when it was looked at

  function toEnd() {
    // At once: the style sheet's smooth scrolling would still be on its way when the next text comes.
    root.scrollTo({ top: root.scrollHeight, behavior: 'instant' })
    last = root.scrollTop
    following = true
  }

  // The first pixel upwards ends following, or the next text would undo a scroll that has just begun; at the end it
  // begins again. Looked at before each piece of text too, whose scroll event may be still to come.
  function look() {
    const left = root.scrollHeight - root.scrollTop - root.clientHeight
    if (root.scrollTop !== last) following = left < 2
    last = root.scrollTop
  }

  document.addEventListener('scroll', look, { passive: true })
  document.addEventListener('htmx:sseBeforeMessage', look)

  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      const form = event.target.closest('.turn-edit, .chat-rename')
      if (!form) return
      event.preventDefault() // the drawer around the form stays open
      form.querySelector('[data-cancel]').click()
      return
    }
    // Enter also ends a word in an input method (Chinese, Japanese); then it must not send.
    if (!event.target.matches('[data-sends]') || event.key !== 'Enter') return
    if (event.shiftKey || event.altKey || event.isComposing) return
    event.preventDefault()
    event.target.form.requestSubmit()
  })

  async function copyCode(button) {
    const code = button.closest('.code').querySelector('code')
    try {
      await navigator.clipboard.writeText(code.textContent)
    } catch (error) { // no clipboard without TLS: select the text, so that the keyboard copies it
      const selection = window.getSelection()
      selection.selectAllChildren(code)
      if (!document.execCommand('copy')) return
      selection.removeAllRanges()
    }
    if (button.dataset.label === undefined) button.dataset.label = button.textContent
    button.textContent = button.dataset.done
    setTimeout(() => { button.textContent = button.dataset.label }, 1500)
  }

  document.addEventListener('click', (event) => {
    const copy = event.target.closest('[data-copy-code]')
    if (copy) copyCode(copy)
    const clear = event.target.closest('[data-clear]')
    if (clear) {
      const fields = document.querySelectorAll(`${clear.dataset.clear} :is(input[type=number], textarea)`)
      fields.forEach((field) => { field.value = '' })
      if (fields.length) fields[0].dispatchEvent(new Event('change', { bubbles: true }))
    }
    const summary = event.target.closest('.turn-reasoning > summary')
    // The click comes before the change that it makes.
    if (summary) remember(summary.closest('.turn'), !summary.parentElement.open)
  })

  // Reasoning stays as the reader left it when its turn is drawn anew, and the last choice holds for new turns.
  function remember(turn, open) {
    opened.set(turn.id, open)
    try {
      localStorage.setItem('panel-reasoning', open ? 'open' : 'folded')
    } catch (error) { // storage may be switched off; the choice then lasts for this page
    }
  }

  function unfold(turn) {
    let open = opened.get(turn.id)
    if (open === undefined && turn.querySelector('[sse-connect]')) {
      try {
        open = localStorage.getItem('panel-reasoning') === 'open'
      } catch (error) {
        open = false
      }
      opened.set(turn.id, open)
    }
    const details = turn.querySelector('.turn-reasoning')
    if (details && open) details.open = true
  }

  function countThought(thought) {
    thought.closest('.turn-reasoning').querySelector('.turn-length').textContent =
      thought.textContent.length.toLocaleString(document.documentElement.lang)
  }

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
    toEnd()
  })

  document.addEventListener('htmx:sseMessage', (event) => {
    const turn = event.target.closest('.turn')
    if (event.target.matches('.turn-thought')) countThought(event.target)
    else if (turn && event.detail.type === 'part') unfold(turn)
    if (following) toEnd()
  })

  document.addEventListener('htmx:load', (event) => {
    event.target.querySelectorAll('.turn').forEach(unfold)
    if (event.target.matches('.turn')) unfold(event.target)
  })

  document.addEventListener('htmx:afterSwap', (event) => {
    const turn = event.target
    if (!turn.matches || !turn.matches('.turn')) return
    const lost = document.activeElement === document.body
    if (turn.querySelector('[sse-connect]')) {
      // The button that asked (Regenerate, Ask again) is gone: the next thing to do is to stop.
      if (lost) turn.querySelector('[data-stop]').focus({ preventScroll: true })
      return
    }
    status.textContent = status.dataset.done
    // The button that had the focus (Stop) is gone with the streaming element.
    if (lost && !prompt.disabled) prompt.focus({ preventScroll: true })
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
