// Small behaviours of the panel's pages. Loaded in <head> before the first paint, so that the theme never flashes.
(function () {
  'use strict'

  const root = document.documentElement
  const dark = window.matchMedia('(prefers-color-scheme: dark)')

  function storedTheme() {
    try {
      return localStorage.getItem('panel-theme') || 'auto'
    } catch (error) { // storage may be switched off
      return 'auto'
    }
  }

  function showTheme() {
    const theme = storedTheme()
    root.setAttribute('data-bs-theme', theme === 'auto' ? (dark.matches ? 'dark' : 'light') : theme)
    document.querySelectorAll('[data-theme]').forEach((button) => {
      button.setAttribute('aria-pressed', String(button.dataset.theme === theme))
    })
  }

  showTheme()
  dark.addEventListener('change', showTheme)

  function chooseTheme(theme) {
    try {
      localStorage.setItem('panel-theme', theme)
    } catch (error) { // the choice then lasts for this page only
      root.setAttribute('data-bs-theme', theme)
      return
    }
    showTheme()
  }

  async function copy(button) {
    const source = document.getElementById(button.dataset.copy)
    const text = source.dataset.text || source.innerText
    try {
      await navigator.clipboard.writeText(text)
    } catch (error) { // no clipboard without TLS: select the text, so that the keyboard copies it
      const range = document.createRange()
      range.selectNodeContents(source)
      const selection = window.getSelection()
      selection.removeAllRanges()
      selection.addRange(range)
      if (!document.execCommand('copy')) return
      selection.removeAllRanges()
    }
    const label = button.querySelector('[data-label]') || button
    const before = label.textContent
    label.textContent = button.dataset.done
    setTimeout(() => { label.textContent = before }, 1500)
  }

  function filterRows(input) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
    let shown = 0
    document.querySelectorAll(input.dataset.filter).forEach((row) => {
      const text = row.textContent.toLowerCase()
      row.hidden = !words.every((word) => text.includes(word))
      if (!row.hidden) shown += 1
    })
    const counter = document.getElementById(input.dataset.counter)
    if (counter) counter.textContent = String(shown)
  }

  // What to ask right now, such as how many requests a stop would cut off; without an answer the plain question.
  async function questionOf(button, plain) {
    if (!button.dataset.ask) return plain
    try {
      const answer = await fetch(button.dataset.ask, { signal: AbortSignal.timeout(3000) })
      return answer.ok && !answer.redirected ? await answer.text() : plain
    } catch (error) { // no answer in time, or no connection
      return plain
    }
  }

  // A question before a destructive action, in the page's own dialog.
  let waiting = null // the button whose question is still on its way
  let settle = null // ends the question that was shown last; the dialog tells of its close only later

  async function ask(event) {
    const dialog = document.getElementById('confirm')
    const button = event.target
    if (!event.detail.question || !dialog) return
    event.preventDefault()
    if (waiting === button || dialog.open) return
    if (settle) settle('')
    // While the question is open, live updates must not take its button away (live.js).
    button.dataset.asking = ''
    waiting = button
    dialog.querySelector('[data-question]').textContent = await questionOf(button, event.detail.question)
    waiting = null
    dialog.returnValue = ''
    const waits = dialog.querySelector('[data-waits]')
    waits.hidden = !('waits' in button.dataset)
    settle = (answer) => {
      settle = null
      const seconds = waits.querySelector('input').checked ? 600 : 0
      if (!waits.hidden) button.setAttribute('hx-vals', JSON.stringify({ wait: seconds }))
      if (answer === 'yes') event.detail.issueRequest(true)
      delete button.dataset.asking
      document.dispatchEvent(new Event('panel:asked'))
    }
    dialog.onclose = () => { if (!dialog.open && settle) settle(dialog.returnValue) }
    dialog.showModal()
  }

  // What has just ended leaves the strip after some seconds.
  function fade(element) {
    if (element.dataset.fading) return
    element.dataset.fading = 'yes'
    setTimeout(() => element.remove(), Number(element.dataset.fleeting) * 1000)
  }

  // An offer beside a field is taken with one click; the form then goes on as if it had been typed.
  function use(button) {
    const field = document.getElementById(button.dataset.use)
    field.value = button.dataset.value
    field.dispatchEvent(new Event('input', { bubbles: true }))
    field.focus()
  }

  // g and a letter lead to a page of the rail, / to the filter of a list.
  let leader = 0
  function shortcut(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return
    if (event.target.closest('input, textarea, select, [contenteditable]')) return
    if (event.key === '/') {
      const field = document.querySelector('[data-slash]')
      if (!field) return
      event.preventDefault()
      field.focus()
    } else if (event.key === 'g') leader = Date.now()
    else if (Date.now() - leader < 1500) {
      leader = 0
      const link = document.querySelector(`.rail a[aria-keyshortcuts="g ${CSS.escape(event.key)}"]`)
      if (link) link.click()
    }
  }

  function complain(text) {
    const place = document.getElementById('messages')
    if (!place) return
    const alert = document.createElement('div')
    alert.className = 'alert alert-danger'
    alert.setAttribute('role', 'alert')
    alert.textContent = text
    place.replaceChildren(alert)
  }

  function tick() {
    const now = Date.now() / 1000
    document.querySelectorAll('[data-since]').forEach((element) => {
      const passed = Math.max(0, now - Number(element.dataset.since))
      element.textContent = passed < 10 ? passed.toFixed(1) + ' s'
        : passed < 100 ? passed.toFixed(0) + ' s'
          : Math.floor(passed / 60) + ' min ' + Math.floor(passed % 60) + ' s'
    })
    document.querySelectorAll('[data-until]').forEach((element) => {
      element.textContent = Math.ceil(Math.max(0, Number(element.dataset.until) - now)) + ' s'
    })
    document.querySelectorAll('[data-fleeting]').forEach(fade)
  }

  // A part that is drawn anew keeps the keyboard where it was.
  let focused = ''
  function remember() {
    focused = document.activeElement ? document.activeElement.id : ''
  }
  function restore() {
    const element = focused && document.getElementById(focused)
    if (element && element !== document.activeElement) element.focus({ preventScroll: true })
    focused = ''
  }

  // A server that was started anew, and the next step of a build, have another log: load it, with a connection
  // that follows it.
  function followRun() {
    const log = document.getElementById('log-part')
    const subject = document.querySelector('[id^="server-"][data-run], [id^="build-"][data-run]')
    if (!log || !subject || !subject.dataset.run || subject.dataset.run === log.dataset.run) return
    log.dataset.run = subject.dataset.run
    htmx.trigger('#follow-run', 'run-changed')
  }

  document.addEventListener('click', (event) => {
    const element = event.target.closest('[data-theme], [data-copy], [data-toggle], [data-dismiss], [data-use], [data-href]')
    document.querySelectorAll('details[data-menu][open]').forEach((menu) => {
      if (!menu.contains(event.target)) menu.open = false
    })
    if (!element) return
    if (element.dataset.theme) chooseTheme(element.dataset.theme)
    else if (element.dataset.copy) copy(element)
    else if (element.dataset.use) use(element)
    else if (element.dataset.toggle) {
      const open = document.getElementById(element.dataset.toggle).classList.toggle('is-open')
      element.setAttribute('aria-expanded', String(open))
    } else if (element.hasAttribute('data-dismiss')) element.closest('[role=alert], [role=status]').remove()
    else if (!event.target.closest('a, button, input, label, summary') && !window.getSelection().toString()) {
      window.location = element.dataset.href
    }
  })
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return shortcut(event)
    document.querySelectorAll('details[data-menu][open]').forEach((menu) => {
      menu.open = false
      menu.querySelector('summary').focus()
    })
  })
  document.addEventListener('input', (event) => {
    if (event.target.matches('[data-filter]')) filterRows(event.target)
  })
  document.addEventListener('htmx:confirm', ask)
  document.addEventListener('htmx:sendError', () => complain(document.body.dataset.noAnswer))
  document.addEventListener('htmx:responseError', (event) => {
    if (event.detail.xhr.status !== 422) complain(document.body.dataset.refused)
  })
  document.addEventListener('htmx:wsBeforeMessage', remember)
  document.addEventListener('htmx:wsAfterMessage', () => {
    restore()
    followRun()
  })
  document.addEventListener('htmx:beforeSwap', remember)
  document.addEventListener('htmx:afterSettle', restore)
  document.addEventListener('DOMContentLoaded', () => {
    showTheme()
    tick()
    setInterval(tick, 500)
  })
})()
