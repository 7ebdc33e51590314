// The state of the page's one connection, in words, and how it comes back.
// #connection carries the words: data-live, data-reconnecting, data-stale ("... %t ..."), data-signed-out,
// data-refused. The server sends a heartbeat every 10 s.
(function () {
  'use strict'

  const SILENT = 25000 // ms without a message after which the page may be out of date
  const CLOSED = 10000 // ms without a connection after which the page says since when
  const HTMX_RETRIES = [1006, 1011, 1012, 1013]
  const REFUSED = { 4400: 'refused', 4401: 'signedOut', 4403: 'refused', 4404: 'refused' }

  let heard = Date.now()
  let open = false
  let refused = ''
  let shown = ''

  // Not the exponential default, which reaches a minute: the panel restarts within seconds.
  function delay(attempt) {
    return Math.min(500 * Math.pow(2, attempt), 5000) * (0.5 + Math.random() / 2)
  }
  htmx.config.wsReconnectDelay = delay

  function state() {
    if (refused) return refused
    const silence = Date.now() - heard
    if (open) return silence > SILENT ? 'stale' : 'live'
    return silence > CLOSED ? 'stale' : 'reconnecting'
  }

  function show() {
    const element = document.getElementById('connection')
    if (!element) return
    const now = state()
    const time = new Date(heard).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
    const text = (element.dataset[now] || '').replace('%t', time)
    if (text === shown) return
    shown = text
    element.textContent = text
    element.dataset.state = now
    document.body.dataset.connection = now
  }

  document.addEventListener('htmx:wsOpen', () => {
    open = true
    refused = ''
    heard = Date.now()
    show()
  })
  // An update would take away an element whose request or question is under way, and with it the answer's
  // place in the page: it waits, only the newest of each element is kept.
  const held = new Map()

  function busy() {
    const ids = new Set()
    for (const element of document.querySelectorAll('.htmx-request, [data-asking]')) {
      for (let node = element; node; node = node.parentElement) if (node.id) ids.add(node.id)
    }
    return ids
  }

  function release() {
    if (!held.size || document.querySelector('.htmx-request, [data-asking]')) return
    const messages = [...held.values()]
    held.clear()
    for (const message of messages) htmx.swap(document.body, message, { swapStyle: 'none' })
  }

  document.addEventListener('htmx:wsBeforeMessage', (event) => {
    const ids = busy()
    if (!ids.size) return release()
    const parts = document.createElement('template')
    parts.innerHTML = event.detail.message
    const waiting = [...parts.content.children].filter((element) => ids.has(element.id))
    if (!waiting.length) return
    heard = Date.now()
    for (const element of waiting) {
      held.set(element.id, element.outerHTML)
      element.remove()
    }
    if (parts.innerHTML.trim()) htmx.swap(document.body, parts.innerHTML, { swapStyle: 'none' })
    event.preventDefault()
  })
  document.addEventListener('htmx:afterRequest', () => setTimeout(release))
  document.addEventListener('panel:asked', () => setTimeout(release))
  document.addEventListener('htmx:wsAfterMessage', () => {
    heard = Date.now()
    show()
  })
  // A connection begins with everything that its page shows: what was held for the one before is old.
  document.addEventListener('htmx:wsConnecting', () => held.clear())
  document.addEventListener('htmx:wsClose', (event) => {
    open = false
    const code = event.detail.event.code
    refused = REFUSED[code] || ''
    // The extension comes back after some codes only; a proxy or a server that is stopped closes with others.
    if (!refused && !HTMX_RETRIES.includes(code)) {
      setTimeout(event.detail.socketWrapper.reconnect, delay(1))
    }
    show()
  })
  document.addEventListener('htmx:wsError', show)

  function begin() {
    if (!document.getElementById('live')) return
    const heartbeat = document.createElement('span')
    heartbeat.id = 'heartbeat'
    heartbeat.hidden = true
    document.body.append(heartbeat)
    show()
    setInterval(show, 1000)
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', begin)
  else begin()
})()
