// What surrounds the lines of the log viewer: line numbers, place in the file, wrap, times, copy, link, keys.
(function () {
  'use strict'

  const DRAG = 120 // ms without a move of the slider after which its place is loaded
  const STEPS = 1000 // of the slider
  const LATER = 2000 // ms after which a number that was not counted in time is asked for again
  const SAID = 4000 // ms that a message stays

  const language = document.documentElement.lang
  const number = (value) => value.toLocaleString(language)
  const isLine = (node) => node.classList.contains('l')
  const endsLine = (node) => node.textContent.endsWith('\n')

  // Bytes as people read them.
  function size(bytes) {
    const steps = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]
    const [step, unit] = steps.find(([least]) => bytes >= least) || steps[3]
    const digits = step > 1 ? 1 : 0
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits }
    return `${(bytes / step).toLocaleString(language, options)} ${unit}`
  }

  function stored(name, otherwise) {
    try {
      return localStorage.getItem(name) || otherwise
    } catch (error) { // storage may be switched off
      return otherwise
    }
  }

  function store(name, value) {
    try {
      localStorage.setItem(name, value)
    } catch (error) { /* the choice then lasts for this page only */ }
  }

  async function toClipboard(text) {
    try {
      await navigator.clipboard.writeText(text)
      return true
    } catch (error) { // no clipboard without TLS
      const fill = (event) => {
        event.clipboardData.setData('text/plain', text)
        event.preventDefault()
      }
      document.addEventListener('copy', fill, { once: true })
      const done = document.execCommand('copy')
      document.removeEventListener('copy', fill)
      return done
    }
  }

  // Line numbers are asked for once, for one line; all others follow from their neighbours. A gap of which
  // the number of lines is not known is asked about at its end.
  class Numbers {
    constructor(view) {
      this.view = view
      this.asking = false
      this.none = false // the server cannot know them
    }

    show() {
      const nodes = this.view.pre.children
      if (!nodes.length || this.none) return
      let place = nodes.length - 1
      while (place >= 0 && !nodes[place].dataset.n) place -= 1
      if (place < 0) return this.ask([...nodes].find((node) => isLine(node) && !node.classList.contains('c')))
      let known = Number(nodes[place].dataset.n)
      for (; place < nodes.length; place += 1) {
        const node = nodes[place]
        if (isLine(node)) {
          if (!node.classList.contains('c')) node.dataset.n = known
          known += endsLine(node) ? 1 : 0
        } else if (node.dataset.lines) {
          known += Number(node.dataset.lines)
        } else {
          return this.ask(nodes[place + 1], node, known)
        }
      }
      this.showHead(nodes)
    }

    showHead(nodes) {
      let place = 0
      let ends = 0
      while (!nodes[place].dataset.n) {
        ends += isLine(nodes[place]) ? (endsLine(nodes[place]) ? 1 : 0) : Number(nodes[place].dataset.lines || NaN)
        place += 1
      }
      let known = Number(nodes[place].dataset.n) - ends
      for (const node of [...nodes].slice(0, Number.isNaN(known) ? 0 : place)) {
        if (isLine(node) && !node.classList.contains('c')) node.dataset.n = known
        known += isLine(node) ? (endsLine(node) ? 1 : 0) : Number(node.dataset.lines)
      }
    }

    async ask(line, gap, before) {
      if (this.asking || !line || !isLine(line)) return
      this.asking = true
      try {
        const answer = await fetch(`${this.view.section.dataset.line}?at=${line.dataset.at}`)
        const found = await answer.json()
        this.none = found.complete && found.line === null
        if (found.line !== null) {
          line.dataset.n = found.line
          if (gap) {
            gap.dataset.lines = found.line - before
            this.view.label(gap)
          }
        }
      } catch (error) { /* it is asked for again */ }
      this.asking = false
      if (line.dataset.n) this.view.settle()
      else if (!this.none) setTimeout(() => this.show(), LATER)
    }
  }

  class Tools {
    constructor(view) {
      this.view = view
      this.pre = view.pre
      this.words = view.section.dataset
      this.numbers = new Numbers(view)
      this.foot = this.find('.log-foot')
      this.slider = this.find('.log-slider')
      this.toggle('.log-wrap', 'panel-log-wrap', 'on', (on) => this.pre.classList.toggle('is-unwrapped', !on))
      this.toggle('.log-times', 'panel-log-times', 'off', (on) => this.pre.classList.toggle('is-timed', on))
      this.button('.log-copy', () => this.copy())
      this.button('.log-link', () => this.link(this.marked() || view.lineInView()))
      this.button('.log-start', () => this.toStart())
      this.button('.log-end', () => view.follow(true))
      this.pre.addEventListener('keydown', (event) => this.key(event))
      this.pre.addEventListener('click', (event) => this.click(event))
      this.pre.addEventListener('scroll', () => this.later(), { passive: true })
      this.slider.addEventListener('input', () => {
        clearTimeout(this.timer)
        this.timer = setTimeout(() => {
          const at = view.first + Math.round((view.end - view.first) * this.slider.value / STEPS)
          view.show(at, { mark: false, top: true })
        }, DRAG)
      })
      view.section.addEventListener('log:changed', () => this.changed())
    }

    find(selector) {
      return this.view.section.querySelector(selector)
    }

    button(selector, action) {
      this.find(selector).hidden = false
      this.find(selector).addEventListener('click', action)
    }

    toggle(selector, name, otherwise, apply) {
      const button = this.find(selector)
      const set = (on) => {
        button.setAttribute('aria-pressed', String(on))
        const line = this.view.following ? null : this.view.lineInView()
        apply(on)
        // Lines have other heights now; what was read stays in view.
        if (line) this.pre.scrollTop = line.offsetTop
        else this.pre.scrollTop = this.pre.scrollHeight
      }
      set(stored(name, otherwise) === 'on')
      this.button(selector, () => {
        const on = button.getAttribute('aria-pressed') !== 'true'
        store(name, on ? 'on' : 'off')
        set(on)
      })
    }

    changed() {
      this.numbers.show()
      this.later()
    }

    // The place is shown once per picture, however often it changes.
    later() {
      if (this.due) return
      this.due = true
      requestAnimationFrame(() => {
        this.due = false
        this.showPlace()
      })
    }

    showPlace() {
      const { first, end, following } = this.view
      const head = this.pre.firstElementChild
      const removed = first > 0 && head && Number(head.dataset.at || head.dataset.start) <= first
      this.pre.dataset.removed = removed ? this.words.removed.replace('%s', size(first)) : ''
      this.foot.hidden = !end
      const top = this.view.lineInView()
      if (!end || !top) return
      const at = following ? end : Number(top.dataset.at)
      const line = Number((following ? this.pre.lastElementChild : top).dataset.n)
      const words = line ? this.words.placeLine : this.words.placeByte
      const text = words.replace('%l', number(line)).replace('%p', size(at)).replace('%s', size(end))
      this.find('.log-place').textContent = text
      if (!this.slider.matches(':active')) this.slider.value = STEPS * (at - first) / Math.max(1, end - first)
      this.slider.setAttribute('aria-valuetext', text)
    }

    key(event) {
      if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return
      if (event.key === 'Home') this.toStart()
      else if (event.key === 'End') this.view.follow(true)
      else return
      event.preventDefault()
    }

    toStart() {
      this.view.show(this.view.first, { mark: false, top: true })
    }

    // A click on the number of a line.
    click(event) {
      const line = event.target.closest('.l')
      if (!line || line.classList.contains('c')) return
      const gutter = parseFloat(getComputedStyle(line).paddingLeft)
      if (event.clientX < line.getBoundingClientRect().left + gutter) this.link(line)
    }

    marked() {
      return this.view.marked === null ? null : this.view.lineAt(this.view.marked)
    }

    // Marks a line; its address goes to the clipboard, and to the browser's bar where this is the log's page.
    async link(line) {
      if (!line) return
      const at = Number(line.dataset.at)
      const address = `${this.words.link}?at=${at}`
      if (this.view.following) this.view.follow(false)
      this.view.marked = at
      this.view.emphasize()
      if (location.pathname === this.words.link) history.replaceState(history.state, '', address)
      this.say(await toClipboard(new URL(address, location.href).href), this.words.linkCopied)
    }

    async copy() {
      const lines = this.chosen()
      const text = lines.map((line) => line.textContent).join('')
      this.say(await toClipboard(text), this.words.copied.replace('%n', number(lines.length)))
    }

    // The lines of the selection, or else those in view; whole lines.
    chosen() {
      const selection = document.getSelection()
      const lines = [...this.pre.children].filter(isLine)
      if (!selection.isCollapsed && selection.rangeCount && selection.containsNode(this.pre, true)) {
        const range = selection.getRangeAt(0)
        const found = lines.filter((line) => range.intersectsNode(line))
        if (found.length) return found
      }
      const top = this.pre.scrollTop
      const bottom = top + this.pre.clientHeight
      return lines.filter((line) => line.offsetTop + line.offsetHeight > top && line.offsetTop < bottom)
    }

    say(done, words) {
      this.view.say(done ? words : this.words.notCopied)
      clearTimeout(this.quiet)
      this.quiet = setTimeout(() => this.view.say(''), SAID)
    }
  }

  document.addEventListener('log:view', (event) => new Tools(event.detail))
})()
