// Search and errors of the log viewer. The server looks through the whole file and names the line that is next;
// the view brings it into the page, and what is in the page is marked here, with the same rule: a text as it
// is shown, the case of A to Z ignored unless asked.
(function () {
  'use strict'

  const TYPING = 250 // ms without a key after which a search begins
  const AGAIN = 4000 // ms between two counts of a log that grows
  const MOST_MARKS = 1000 // in one line
  const ATTEMPTS = 60 // of 2 s each, in which a search may come to its end

  const number = (value) => value.toLocaleString(document.documentElement.lang)
  const folded = (text) => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase())
  const sentence = (words, n, i) => words.replace('%n', number(n)).replace('%i', number(i || 0))

  // Asks the server about lines of one sort; a new question ends the one before it.
  class Lines {
    constructor(view, url, show) {
      this.view = view
      this.url = url
      this.show = show
      this.controller = null
      this.counted = 0 // up to this byte
      this.index = null // the number of the line that was found last
    }

    stop() {
      if (this.controller) this.controller.abort()
      this.controller = null
    }

    // Goes to the next line from a byte, or only counts; a search that takes long goes on until it is complete.
    async go(query, at, way) {
      this.stop()
      const controller = this.controller = new AbortController()
      const end = this.view.end
      if (way !== 'count') this.index = null
      try {
        for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
          const address = `${this.url}?${new URLSearchParams({ ...query, at, go: way })}`
          const answer = await fetch(address, { signal: controller.signal })
          if (!answer.ok || answer.redirected) throw new Error(String(answer.status))
          const found = await answer.json()
          this.index = found.index || this.index
          this.show({ ...found, index: this.index })
          if (found.at !== null) {
            await this.view.show(found.at)
            way = 'count'
          }
          if (found.complete) {
            this.counted = end
            break
          }
        }
      } catch (error) {
        if (controller.signal.aborted) return
        this.show(null)
      }
      if (this.controller === controller) this.controller = null
    }

    // Counts again when the log has grown.
    grown(query) {
      if (!this.controller && this.view.end !== this.counted) this.go(query, 0, 'count')
    }
  }

  // From where to go on: the marked line while it is in view, or else what is in view.
  function place(view) {
    const top = view.lineInView()
    const bottom = view.lineInView(view.pre.clientHeight)
    const first = top ? Number(top.dataset.at) : 0
    const last = bottom ? Number(bottom.dataset.at) : Infinity
    if (view.marked !== null && view.marked >= first && view.marked <= last) return { at: view.marked, next: 'next' }
    return { at: first, next: 'here' }
  }

  class Errors {
    constructor(view) {
      this.view = view
      this.part = view.section.querySelector('.log-errors')
      this.lines = new Lines(view, view.section.dataset.errors, (found) => this.show(found))
      this.part.addEventListener('click', (event) => {
        const button = event.target.closest('[data-go]')
        if (!button) return
        const { at, next } = place(view)
        this.lines.go({}, at, button.dataset.go === 'next' ? next : 'prev')
      })
    }

    show(found) {
      if (!found) return
      const words = this.view.section.dataset
      const { count, index, more } = found
      this.part.hidden = !count
      const all = more ? words.mostErrors : count === 1 ? words.oneError : words.manyErrors
      this.part.querySelector('.log-error-count').textContent =
        index ? sentence(words.errorOf, count, index) + (more ? '+' : '') : sentence(all, count)
    }
  }

  class Search {
    constructor(view) {
      this.view = view
      this.part = view.section.querySelector('.log-search')
      this.field = this.part.querySelector('.log-query')
      this.case = this.part.querySelector('.log-case')
      this.label = this.part.querySelector('.log-count')
      this.lines = new Lines(view, view.section.dataset.search, (found) => this.show(found))
      this.asked = '' // what the count stands for
      this.token = 0 // changes with what is marked in the page
      this.part.hidden = false
      this.field.addEventListener('input', () => {
        clearTimeout(this.timer)
        this.timer = setTimeout(() => this.begin(), TYPING)
      })
      this.field.addEventListener('keydown', (event) => this.key(event))
      this.case.addEventListener('click', () => {
        this.case.setAttribute('aria-pressed', String(!this.exact))
        this.begin()
      })
      this.part.addEventListener('click', (event) => {
        const button = event.target.closest('[data-go]')
        if (button) this.go(button.dataset.go)
      })
    }

    get exact() {
      return this.case.getAttribute('aria-pressed') === 'true'
    }

    get query() {
      return { q: this.field.value, case: this.exact ? '1' : '0' }
    }

    key(event) {
      if (event.key === 'Enter') {
        event.preventDefault()
        this.go(event.shiftKey ? 'prev' : 'next')
      } else if (event.key === 'Escape') {
        event.preventDefault()
        this.field.value = ''
        this.begin()
        this.view.pre.focus({ preventScroll: true })
      }
    }

    begin() {
      clearTimeout(this.timer)
      this.asked = JSON.stringify(this.query)
      this.token += 1
      this.mark()
      if (!this.field.value) {
        this.lines.stop()
        this.label.textContent = ''
        return
      }
      this.label.textContent = this.view.section.dataset.searching
      this.lines.go(this.query, place(this.view).at, 'here')
    }

    go(way) {
      if (!this.field.value) return
      if (this.asked !== JSON.stringify(this.query)) return this.begin()
      const { at, next } = place(this.view)
      this.lines.go(this.query, at, way === 'next' ? next : 'prev')
    }

    show(found) {
      const words = this.view.section.dataset
      if (!found) {
        this.label.textContent = words.notSearched
        return
      }
      const { count, index, more, complete } = found
      let text = more ? words.mostMatches : count === 1 ? words.oneMatch : words.manyMatches
      if (index) text = words.matchOf + (more || !complete ? '+' : '')
      else if (!count) text = complete ? words.noMatch : words.searching
      this.label.textContent = sentence(text, count, index)
    }

    // Marks the text in the lines that are new in the page, or in all when it is another text.
    mark() {
      const text = this.field.value
      const needle = this.exact ? text : folded(text)
      for (const line of this.view.pre.children) {
        if (line.marked === this.token || (!needle && !line.marked)) continue
        if (line.marked) clear(line)
        line.marked = needle ? this.token : null
        if (needle) markIn(line, needle, this.exact)
      }
    }
  }

  function clear(line) {
    for (const mark of line.querySelectorAll('mark')) mark.replaceWith(...mark.childNodes)
    line.normalize()
  }

  function markIn(line, needle, exact) {
    const text = exact ? line.textContent : folded(line.textContent)
    const matches = []
    for (let at = text.indexOf(needle); at >= 0 && matches.length < MOST_MARKS; at = text.indexOf(needle, at + needle.length)) {
      matches.unshift(at)
    }
    if (!matches.length) return
    const nodes = []
    const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT)
    for (let begin = 0; walker.nextNode(); begin += walker.currentNode.length) nodes.unshift([walker.currentNode, begin])
    // A match may reach over several colours: each part of it is marked. From the end on, so that places stay.
    for (const [node, begin] of nodes) {
      for (const at of matches) {
        const from = Math.max(at - begin, 0)
        const to = Math.min(at + needle.length - begin, node.length)
        if (from >= to) continue
        if (to < node.length) node.splitText(to)
        const part = from ? node.splitText(from) : node
        const mark = document.createElement('mark')
        part.replaceWith(mark)
        mark.append(part)
      }
    }
  }

  const searches = new WeakMap()

  document.addEventListener('log:view', (event) => {
    const view = event.detail
    const errors = new Errors(view)
    const search = new Search(view)
    searches.set(view.section, search)
    view.section.addEventListener('log:changed', () => search.mark())
    const grown = () => {
      if (document.hidden || view.end === null) return
      errors.lines.grown({})
      if (search.field.value && search.asked === JSON.stringify(search.query)) search.lines.grown(search.query)
    }
    view.section.addEventListener('log:changed', grown, { once: true })
    const timer = setInterval(() => {
      if (view.section.isConnected) grown()
      else clearInterval(timer)
    }, AGAIN)
  })

  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.altKey || event.metaKey) return
    if (event.target.closest('input, textarea, select, [contenteditable]')) return
    const section = event.target.closest('.log-viewer') || document.querySelector('.log-viewer')
    if (!searches.has(section)) return
    event.preventDefault()
    searches.get(section).field.select()
  })
})()
