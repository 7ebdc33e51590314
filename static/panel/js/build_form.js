// The rows of CMake definitions of a build config's form: added and removed without loading the page.
(function () {
  'use strict'

  function addRow(place) {
    const row = place.lastElementChild.cloneNode(true)
    row.querySelectorAll('input').forEach((input) => { input.value = '' })
    place.append(row)
    row.querySelector('input').focus()
  }

  // The last row is emptied instead: one has to be there to be copied.
  function dropRow(row) {
    const place = row.parentElement
    const form = row.closest('form')
    if (place.childElementCount > 1) row.remove()
    else row.querySelectorAll('input').forEach((input) => { input.value = '' })
    place.querySelector('input').focus()
    form.dispatchEvent(new Event('input', { bubbles: true }))
  }

  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-add-row], [data-drop-row]')
    if (!button) return
    if (button.dataset.addRow) addRow(document.getElementById(button.dataset.addRow))
    else dropRow(button.closest('[data-row]'))
  })
  document.addEventListener('DOMContentLoaded', () => {
    document.querySelectorAll('[data-add-row], [data-drop-row]').forEach((button) => { button.hidden = false })
  })
})()
