// The profile form's own behaviours: fields that are set or emptied together, groups, what is not saved yet.
(function () {
  'use strict'

  function tell(field) {
    field.dispatchEvent(new Event('input', { bubbles: true }))
  }

  // Empties fields as if somebody had typed it; the form asks for its consequence once.
  function empty(button) {
    const fields = button.dataset.empties.split(' ').map((name) => document.getElementById('id_' + name))
    const touched = fields.filter((field) => field && field.value)
    touched.forEach((field) => { field.value = '' })
    if (touched.length) tell(touched[0])
    const next = document.getElementById(button.dataset.then)
    if (next) next.focus()
  }

  // A suggestion sets several fields; the form asks for its consequence once.
  function apply(button) {
    const changes = Object.entries(JSON.parse(button.dataset.changes))
    const fields = changes.map(([name, value]) => {
      const field = document.getElementById('id_' + name)
      if (field) field.value = value
      return field
    }).filter(Boolean)
    if (fields.length) tell(fields[0])
  }

  // The page's own dialog asks first where there is a question (panel.js).
  function emptyAfterQuestion(button) {
    if (!button.dataset.question) return empty(button)
    const detail = { question: button.dataset.question, issueRequest: () => empty(button) }
    button.dispatchEvent(new CustomEvent('htmx:confirm', { bubbles: true, cancelable: true, detail }))
  }

  // A variable gets a line of its own; its value is typed behind it, or joins those that are there.
  function addVariable(button) {
    const name = button.dataset.adds
    const value = button.dataset.value
    const area = document.getElementById('id_environment')
    const lines = area.value.split('\n').filter((line) => line.trim())
    let at = lines.findIndex((line) => line.includes('=') && line.split('=')[0].trim() === name)
    if (at < 0) at = lines.push(name + '=') - 1
    if (value) {
      const there = lines[at].slice(lines[at].indexOf('=') + 1).split(',').map((one) => one.trim())
      lines[at] = name + '=' + [...there.filter((one) => one && one !== value), value].join(',')
    }
    area.value = lines.join('\n')
    const end = lines.slice(0, at + 1).join('\n').length
    area.focus()
    area.setSelectionRange(end, end)
    if (value) tell(area)
  }

  function reveal(link) {
    const target = document.getElementById(link.hash.slice(1))
    const group = target && target.closest('details')
    if (group) {
      group.open = true
      chosen.set(group.id, true)
    }
    // A link of the checks leads on to the field itself.
    if (target && target.matches('input, select, textarea')) target.focus()
  }

  // A template keeps what is chosen above it.
  function carry(field) {
    document.querySelectorAll('a[data-template]').forEach((link) => {
      const address = new URL(link.href)
      address.searchParams.set(field.name, field.value)
      link.href = address.href
    })
  }

  // What is drawn anew stays folded or unfolded as somebody chose.
  const chosen = new Map()
  function restoreFolds() {
    chosen.forEach((open, id) => {
      const part = document.getElementById(id)
      if (part) part.open = open
    })
  }

  document.addEventListener('click', (event) => {
    const summary = event.target.closest('#profile-form summary')
    if (summary) chosen.set(summary.parentElement.id, !summary.parentElement.open)
  })
  document.addEventListener('htmx:afterSettle', restoreFolds)

  document.addEventListener('click', (event) => {
    const element = event.target.closest('[data-empties], [data-adds], [data-changes], #profile-form a[href^="#"]')
    if (!element) return
    if (element.dataset.empties) emptyAfterQuestion(element)
    else if (element.dataset.adds) addVariable(element)
    else if (element.dataset.changes) apply(element)
    else reveal(element)
  })
  // What was typed is not lost by a click that leads away.
  let unsaved = false
  document.addEventListener('input', (event) => {
    if (event.target.closest('#profile-form')) unsaved = true
  })
  document.addEventListener('submit', () => { unsaved = false })
  window.addEventListener('beforeunload', (event) => {
    if (unsaved) event.preventDefault()
  })

  document.addEventListener('change', (event) => {
    if (event.target.matches('#group-what input, #group-what select')) carry(event.target)
  })
})()
