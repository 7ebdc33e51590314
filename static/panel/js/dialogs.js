// Dialogs whose content is fetched when they are asked for.
(function () {
  'use strict'

  // A dialog opens once what it shows has arrived.
  document.addEventListener('htmx:afterSwap', (event) => {
    const button = event.detail.requestConfig && event.detail.requestConfig.elt
    const dialog = button && button.dataset.opens && document.getElementById(button.dataset.opens)
    if (dialog && !dialog.open) dialog.showModal()
  })

  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-close]')
    if (button) button.closest('dialog').close()
  })
})()
