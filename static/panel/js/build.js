// A build that has told what it can do while its page was open: all its flags are too much for a live update.
(function () {
  'use strict'

  document.addEventListener('htmx:wsAfterMessage', () => {
    const place = document.querySelector('#flags-part[hx-get]:not([data-asked])')
    if (!place || !document.querySelector('[id^="build-end-"][data-capable]')) return
    place.dataset.asked = ''
    htmx.trigger(place, 'flags-known')
  })
})()
