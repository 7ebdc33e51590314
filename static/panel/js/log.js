// The log viewer. htmx hands every message for a <pre class="log"> to this script, which keeps the lines in
// order, at most MAX_LINES of them, and loads what is not there from the file.
//
// A line is <span class="l" data-at="byte">; class "c" says that it goes on with the line before it. A gap is
// <button class="log-gap" data-start data-end>. While the reader does not follow, new lines wait outside the
// page once it is full, so that nothing moves under the eyes.
// Other scripts learn of a view from the event "log:view", of changes in it from "log:changed".
(function () {
  'use strict'

  const MAX_LINES = 2000
  const MAX_BYTES = 4 * 1024 * 1024
  const MAX_JOINED = 64 * 1024 // characters of a line after which its rest is a line of its own
  const BLOCK = 64 * 1024 // bytes loaded from the file at a time
  const NEAR = 24 // pixels from the end that count as the end

  // What a carriage return would have a terminal overwrite goes; colours around the rest stay.
  function collapse(line) {
    const text = line.textContent
    const cut = text.replace(/\r*\n?$/, '').lastIndexOf('\r')
    if (cut < 0) return
    const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT)
    let left = cut + 1
    while (walker.nextNode()) {
      const node = walker.currentNode
      if (node.length >= left) {
        const range = document.createRange()
        range.setStart(line, 0)
        range.setEnd(node, left)
        range.deleteContents()
        return
      }
      left -= node.length
    }
  }

  const isLine = (node) => node.classList.contains('l')
  const startOf = (node) => Number(node.dataset.at || node.dataset.start)

  // Appends nodes to a parent (the <pre> or a fragment); a line that goes on joins the one before it.
  function put(parent, node) {
    const last = parent.lastElementChild
    if (isLine(node) && node.classList.contains('c') && last && isLine(last) &&
        !last.textContent.endsWith('\n') && last.textContent.length < MAX_JOINED) {
      last.append(...node.childNodes)
      if (last.marked) last.marked = -1 // its text is another one than the search has seen
      node = last
    } else {
      parent.append(node)
    }
    if (isLine(node) && node.textContent.includes('\r')) collapse(node)
  }

  // The place of the last child for which `before` is true; the children are in order.
  function lastChild(parent, before) {
    let low = 0
    let high = parent.children.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (before(parent.children[middle])) low = middle + 1
      else high = middle
    }
    return low - 1
  }

  class LogView {
    constructor(pre) {
      this.pre = pre
      this.section = pre.closest('.log-viewer')
      this.followButton = this.section.querySelector('.log-follow')
      this.newLabel = this.section.querySelector('.log-new')
      this.following = true
      this.busy = null // a promise while text is loaded
      this.marked = null // the first byte of the line that stands out
      this.still = -1 // the scroll position that this script chose
      this.wanted = this.wantedLine()
      this.clear(0)
      pre.addEventListener('scroll', () => this.scrolled(), { passive: true })
      pre.addEventListener('wheel', () => this.scrolled(true), { passive: true }) // also where it goes no farther
      pre.addEventListener('click', (event) => {
        const gap = event.target.closest('.log-gap')
        if (gap) this.fill(gap)
      })
      this.followButton.addEventListener('click', () => this.follow(!this.following))
    }

    // The line that the page's address names.
    wantedLine() {
      const at = new URLSearchParams(location.search).get('at')
      return location.pathname === this.section.dataset.link && /^\d{1,15}$/.test(at) ? Number(at) : null
    }

    clear(first) {
      this.pre.replaceChildren()
      this.first = first // the log's first byte that is still in the file
      this.end = null // the byte after the last one that arrived
      this.waiting = document.createDocumentFragment()
      // The byte after the page's last line, when text between it and `waiting` was let go.
      this.hole = this.wanted === null ? null : 0
      this.fresh = 0 // lines that arrived since the reader stopped to follow
    }

    receive(fragment) {
      if (this.wanted !== null && this.following) this.follow(false)
      for (const node of [...fragment.children]) {
        if (node.classList.contains('log-gap')) this.add([node], Number(node.dataset.end))
        else this.receivePiece(node)
      }
      this.settle()
      const wanted = this.wanted
      if (wanted === null || this.end === null) return
      this.wanted = null
      this.show(wanted).then((shown) => { if (!shown) this.follow(true) })
    }

    receivePiece(piece) {
      const { start, end, time, first, snapshot } = piece.dataset
      let lines = [...piece.children]
      if (time) {
        const text = new Date(Number(time)).toLocaleTimeString([], { hour12: false })
        for (const line of lines) line.dataset.time = text
      }
      if (snapshot !== undefined) {
        if (this.following || this.end === null || Number(end) < this.end) {
          this.clear(Number(first))
        } else if (Number(start) > this.end) { // the connection was away for longer than a snapshot reaches
          this.add([this.gap(this.end, Number(start))], Number(start))
        } else {
          lines = lines.filter((line) => startOf(line) >= this.end)
        }
      }
      this.add(lines, Number(end))
    }

    add(nodes, end) {
      const room = this.following || (!this.waiting.firstChild && this.hole === null &&
        this.pre.childElementCount < MAX_LINES)
      const parent = room ? this.pre : this.waiting
      if (!this.following && this.end !== null) this.fresh += nodes.length
      for (const node of nodes) {
        if (!isLine(node)) this.label(node)
        put(parent, node)
      }
      if (!room && this.waiting.childElementCount > MAX_LINES) {
        if (this.hole === null) this.hole = startOf(this.waiting.firstElementChild)
        this.behead(this.waiting)
      }
      this.end = end
    }

    // Takes lines from the head until MAX_LINES are left.
    behead(parent) {
      const nodes = parent.children
      let number = Math.max(0, nodes.length - MAX_LINES)
      while (this.following && number < nodes.length - 1 && this.end - startOf(nodes[number]) > MAX_BYTES) number += 1
      if (!number) return
      const height = this.following ? 0 : this.pre.scrollHeight
      const range = document.createRange()
      range.setStart(parent, 0)
      range.setEndBefore(nodes[number])
      range.deleteContents()
      if (!this.following && parent === this.pre) this.pre.scrollTop -= height - this.pre.scrollHeight
    }

    // The same at the end of the page: what goes can be loaded again through a gap.
    curtail() {
      if (this.pre.childElementCount <= MAX_LINES) return
      const range = document.createRange()
      range.setStartBefore(this.pre.children[MAX_LINES])
      range.setEndAfter(this.pre.lastChild)
      this.hole = startOf(this.pre.children[MAX_LINES])
      range.deleteContents()
    }

    gap(start, end) {
      const button = document.createElement('button')
      button.type = 'button'
      button.className = 'log-gap'
      button.dataset.start = start
      button.dataset.end = end
      this.label(button)
      return button
    }

    label(gap) {
      const words = this.section.dataset
      const text = gap.dataset.lines ? words.skippedLines.replace('%n', gap.dataset.lines) : words.skipped
      gap.dataset.label = text
      gap.setAttribute('aria-label', text)
    }

    settle() {
      if (this.following) {
        this.behead(this.pre)
        this.pre.scrollTop = this.pre.scrollHeight
      }
      this.newLabel.hidden = this.following || !this.fresh
      this.newLabel.querySelector('[data-new]').textContent = String(this.fresh)
      this.emphasize()
      this.section.dispatchEvent(new CustomEvent('log:changed', { detail: this }))
    }

    emphasize() {
      const old = this.pre.querySelector('.at')
      const line = this.marked === null ? null : this.lineAt(this.marked)
      if (old === line) return
      if (old) old.classList.remove('at')
      if (line) line.classList.add('at')
    }

    // The line in the page that begins at this byte.
    lineAt(at) {
      const node = this.pre.children[lastChild(this.pre, (child) => startOf(child) <= at)]
      return node && isLine(node) && startOf(node) === at ? node : null
    }

    // The first line that is at least half in view; `below`, how far down in pixels to begin.
    lineInView(below = 0) {
      const edge = this.pre.scrollTop + below - 9
      const nodes = this.pre.children
      let place = lastChild(this.pre, (child) => child.offsetTop < edge) + 1
      while (place < nodes.length && !isLine(nodes[place])) place += 1
      return nodes[place] || null
    }

    follow(on) {
      if (on && !this.following) {
        const next = this.waiting.firstElementChild ? startOf(this.waiting.firstElementChild) : this.end
        // Near the end what was read stays, before a gap; from farther away the page begins anew.
        if (this.hole !== null && next - this.hole > BLOCK) return this.toEnd()
        if (this.hole !== null && this.hole < next) this.pre.append(this.gap(this.hole, next))
        this.takeWaiting()
      }
      this.following = on
      this.followButton.setAttribute('aria-pressed', String(on))
      this.settle()
    }

    takeWaiting() {
      for (const node of [...this.waiting.children]) put(this.pre, node)
      this.hole = null
      this.fresh = 0
    }

    scrolled(byHand = false) {
      const { scrollTop, scrollHeight, clientHeight } = this.pre
      if (this.busy || (!byHand && Math.abs(scrollTop - this.still) < 1)) return
      this.still = -1
      const atEnd = scrollHeight - scrollTop - clientHeight < NEAR
      if (atEnd && this.hole !== null) this.newer()
      else if (atEnd !== this.following) this.follow(atEnd)
      if (!this.following && scrollTop < NEAR) this.older()
    }

    // Loads lines from the file; where none is cut is for the server to see.
    async load(query) {
      const answer = await fetch(`${this.section.dataset.range}?${new URLSearchParams(query)}`)
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status))
      const template = document.createElement('template')
      template.innerHTML = await answer.text()
      const { start, end, first, here } = template.content.firstElementChild.dataset
      const lines = document.createDocumentFragment()
      for (const line of [...template.content.firstElementChild.children]) put(lines, line)
      this.first = Math.max(this.first, Number(first))
      return { lines, start: Number(start), end: Number(end), here: Number(here) }
    }

    // Runs one load at a time; what it did is shown at its end. Gives false when it failed.
    once(action, failed = () => {}) {
      if (this.busy) return this.busy
      this.busy = (async () => {
        let done = true
        try {
          await action()
        } catch (error) {
          done = false
          failed(this.section.dataset.notLoaded)
        }
        this.busy = null
        this.settle()
        return done
      })()
      return this.busy
    }

    older() {
      const head = this.pre.firstElementChild
      if (!head || startOf(head) <= this.first) return
      this.once(async () => {
        if (this.following) this.follow(false)
        const end = startOf(head)
        const piece = await this.load({ start: Math.max(this.first, end - BLOCK), end, align: 'start' })
        if (this.pre.firstElementChild !== head) return
        if (!piece.lines.firstChild) this.first = end // the text was removed meanwhile
        const height = this.pre.scrollHeight
        this.pre.prepend(piece.lines)
        this.pre.scrollTop += this.pre.scrollHeight - height
        this.curtail()
      }, (words) => this.say(words))
    }

    newer() {
      this.once(async () => {
        const waiting = this.waiting.firstElementChild
        const end = waiting ? startOf(waiting) : this.end
        const piece = await this.load({ start: this.hole, end: Math.min(end, this.hole + BLOCK), align: 'end' })
        for (const line of [...piece.lines.children]) put(this.pre, line)
        this.hole = piece.end > this.hole ? piece.end : end
        if (this.hole >= end) this.takeWaiting()
        this.behead(this.pre)
      }, (words) => this.say(words))
    }

    fill(gap) {
      this.once(async () => {
        if (this.following) this.follow(false)
        const start = Number(gap.dataset.start)
        const end = Number(gap.dataset.end)
        const piece = await this.load({ start, end: Math.min(end, start + BLOCK), align: 'end' })
        const before = [...this.pre.children].indexOf(gap)
        if (gap.dataset.lines) {
          gap.dataset.lines = Math.max(0, Number(gap.dataset.lines) - piece.lines.childElementCount)
        }
        gap.before(piece.lines)
        gap.dataset.start = piece.end
        this.label(gap)
        if (piece.end >= end || piece.end <= start) gap.remove()
        if (before < MAX_LINES / 2) this.curtail()
        else this.behead(this.pre)
      }, (words) => { gap.dataset.label = words })
    }

    toEnd() {
      return this.once(async () => {
        this.waiting.replaceChildren()
        const end = this.end // what comes from here on waits, because there is a hole
        const piece = await this.load({ start: Math.max(this.first, end - BLOCK), end, align: 'start' })
        this.pre.replaceChildren(piece.lines)
        this.takeWaiting()
        this.follow(true)
      }, (words) => this.say(words))
    }

    // Brings the line to which a byte belongs into view. Gives false when it could not be loaded.
    async show(at, { mark = true, top = false } = {}) {
      while (this.busy) await this.busy
      if (this.following) this.follow(false)
      if (!this.lineAt(at)) {
        const loaded = await this.once(async () => {
          const piece = await this.load({ around: at })
          at = piece.here
          this.replace(piece)
        }, (words) => this.say(words))
        if (!loaded) return false
      }
      if (mark) this.marked = at
      this.emphasize()
      const line = this.lineAt(at)
      if (line) {
        const above = top ? 0 : (this.pre.clientHeight - Math.min(line.offsetHeight, this.pre.clientHeight)) / 2
        this.pre.scrollTop = Math.max(0, line.offsetTop - above)
      }
      this.still = this.pre.scrollTop // or else the end of the log would turn following on again
      return true
    }

    // Shows other lines in place of those in the page. What follows them comes from the file on scroll.
    replace({ lines, end }) {
      // The file may be ahead of what arrived here; that text is on its way.
      while (lines.lastElementChild && end > this.end) {
        end = startOf(lines.lastElementChild)
        lines.lastElementChild.remove()
      }
      const waiting = this.waiting.firstElementChild
      if (waiting && end > startOf(waiting)) this.waiting.replaceChildren()
      this.pre.replaceChildren(lines)
      this.hole = end
      if (end >= (this.waiting.firstElementChild ? startOf(this.waiting.firstElementChild) : this.end)) this.takeWaiting()
    }

    say(words) {
      this.section.querySelector('.log-said').textContent = words
    }
  }

  const views = new WeakMap()

  document.addEventListener('htmx:oobBeforeSwap', (event) => {
    const pre = event.detail.target
    if (!pre.matches('pre.log')) return
    event.detail.shouldSwap = false
    if (!views.has(pre)) {
      const view = new LogView(pre)
      views.set(pre, view)
      document.dispatchEvent(new CustomEvent('log:view', { detail: view }))
    }
    views.get(pre).receive(event.detail.fragment)
  })
})()
