// The numbers of running servers in a table: #meters comes live, its values go into the cells (data-meter="<pk> <part>").
(function () {
  'use strict'

  function fill() {
    const now = Object.fromEntries([...document.querySelectorAll('#meters [data-pk]')].map((item) => [item.dataset.pk, item.dataset]))
    document.querySelectorAll('[data-meter]').forEach((cell) => {
      const [pk, part] = cell.dataset.meter.split(' ')
      const text = (now[pk] || {})[part] || '–'
      if (cell.textContent !== text) cell.textContent = text
    })
  }

  document.addEventListener('htmx:oobAfterSwap', (event) => { if (event.detail.target.id === 'meters') fill() })
})()
