// The log viewer. htmx hands every message for a <pre class="log"> to this script, which keeps the lines in
// order, at most MAX_LINES of them, and loads what is not there from the file.
//
// A line is <span class="l" data-at="byte">; class "c" says that it goes on with the line before it. A gap is
// <button class="log-gap" data-start data-end>. While the reader does not follow, new lines wait outside the
// page once it is full, so that nothing moves under the eyes.
(function () {
  'use strict'

  const MAX_LINES = 2000
  const MAX_BYTES = 4 * 1024 * 1024
  const MAX_JOINED = 64 * 1024 // characters of a line after which its rest is a line of its own
  const BLOCK = 64 * 1024 // bytes loaded from the file at a time
  const MAX_LOADED = 1000 // lines of them that are kept, so that what is read stays in the page
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
      node = last
    } else {
      parent.append(node)
    }
    if (isLine(node) && node.textContent.includes('\r')) collapse(node)
  }

  class LogView {
    constructor(pre) {
      this.pre = pre
      this.section = pre.closest('.log-viewer')
      this.followButton = this.section.querySelector('.log-follow')
      this.olderButton = this.section.querySelector('.log-older')
      this.newLabel = this.section.querySelector('.log-new')
      this.following = true
      this.busy = false
      this.clear(0)
      pre.addEventListener('scroll', () => this.scrolled(), { passive: true })
      pre.addEventListener('click', (event) => {
        const gap = event.target.closest('.log-gap')
        if (gap) this.fill(gap)
      })
      this.followButton.addEventListener('click', () => this.follow(!this.following))
      this.olderButton.addEventListener('click', () => this.older())
    }

    clear(first) {
      this.pre.replaceChildren()
      this.first = first // the log's first byte that is still in the file
      this.end = null // the byte after the last one that arrived
      this.waiting = document.createDocumentFragment()
      this.hole = null // the byte after the page's last line, when text between it and `waiting` was let go
      this.fresh = 0 // lines that arrived since the reader stopped to follow
    }

    receive(fragment) {
      for (const node of [...fragment.children]) {
        if (node.classList.contains('log-gap')) this.add([node], Number(node.dataset.end))
        else this.receivePiece(node)
      }
      this.settle()
    }

    receivePiece(piece) {
      const start = Number(piece.dataset.start)
      const end = Number(piece.dataset.end)
      let lines = [...piece.children]
      if ('snapshot' in piece.dataset) {
        if (this.following || this.end === null || end < this.end) {
          this.clear(Number(piece.dataset.first))
        } else if (start > this.end) { // the connection was away for longer than a snapshot reaches
          this.add([this.gap(this.end, start)], start)
        } else {
          lines = lines.filter((line) => Number(line.dataset.at) >= this.end)
        }
      }
      this.add(lines, end)
    }

    add(nodes, end) {
      const room = this.following || (!this.waiting.firstChild && this.hole === null &&
        this.pre.childElementCount < MAX_LINES)
      const parent = room ? this.pre : this.waiting
      if (!this.following) this.fresh += nodes.length
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
      const surplus = this.pre.childElementCount - MAX_LINES
      if (surplus <= 0) return
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
      const head = this.pre.firstElementChild
      this.olderButton.hidden = !head || startOf(head) <= this.first
      this.newLabel.hidden = this.following || !this.fresh
      this.newLabel.querySelector('[data-new]').textContent = String(this.fresh)
    }

    follow(on) {
      if (on && !this.following) {
        const next = this.waiting.firstElementChild ? startOf(this.waiting.firstElementChild) : this.end
        if (this.hole !== null && this.hole < next) this.pre.append(this.gap(this.hole, next))
        for (const node of [...this.waiting.children]) put(this.pre, node)
        this.hole = null
        this.fresh = 0
      }
      this.following = on
      this.followButton.setAttribute('aria-pressed', String(on))
      this.settle()
    }

    scrolled() {
      if (this.busy) return
      const { scrollTop, scrollHeight, clientHeight } = this.pre
      const atEnd = scrollHeight - scrollTop - clientHeight < NEAR
      if (atEnd && this.hole !== null) this.newer()
      else if (atEnd !== this.following) this.follow(atEnd)
      if (!this.following && scrollTop < NEAR) this.older()
    }

    // Loads from the file; `align` names the end of the range at which no line may be cut.
    async load(start, end, align) {
      const answer = await fetch(`${this.section.dataset.range}?start=${start}&end=${end}&align=${align}`)
      if (!answer.ok) throw new Error(String(answer.status))
      const template = document.createElement('template')
      template.innerHTML = await answer.text()
      const piece = template.content.firstElementChild
      const lines = document.createDocumentFragment()
      for (const line of [...piece.children]) put(lines, line)
      let reached = Number(piece.dataset.end)
      while (lines.childElementCount > MAX_LOADED) {
        if (align === 'start') {
          lines.firstElementChild.remove()
        } else {
          reached = startOf(lines.lastElementChild)
          lines.lastElementChild.remove()
        }
      }
      return { lines, end: reached }
    }

    // Runs one load at a time; what it did is shown at its end.
    async once(action, failed) {
      if (this.busy) return
      this.busy = true
      try {
        await action()
      } catch (error) {
        failed(this.section.dataset.notLoaded)
      }
      this.busy = false
      this.settle()
    }

    older() {
      const head = this.pre.firstElementChild
      if (!head || startOf(head) <= this.first) return
      const button = this.olderButton
      this.once(async () => {
        if (this.following) this.follow(false)
        const end = startOf(head)
        const piece = await this.load(Math.max(this.first, end - BLOCK), end, 'start')
        if (this.pre.firstElementChild !== head) return
        if (!piece.lines.firstChild) this.first = end // the text was removed meanwhile
        const height = this.pre.scrollHeight
        this.pre.prepend(piece.lines)
        this.pre.scrollTop += this.pre.scrollHeight - height
        this.curtail()
      }, (words) => { button.title = words })
    }

    newer() {
      this.once(async () => {
        const waiting = this.waiting.firstElementChild
        const end = waiting ? startOf(waiting) : this.end
        const piece = await this.load(this.hole, Math.min(end, this.hole + BLOCK), 'end')
        this.pre.append(piece.lines)
        this.hole = piece.end > this.hole ? piece.end : end
        if (this.hole >= end) {
          this.hole = null
          for (const node of [...this.waiting.children]) put(this.pre, node)
        }
        this.behead(this.pre)
      }, () => {})
    }

    fill(gap) {
      this.once(async () => {
        if (this.following) this.follow(false)
        const start = Number(gap.dataset.start)
        const end = Number(gap.dataset.end)
        const piece = await this.load(start, Math.min(end, start + BLOCK), 'end')
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
  }

  const views = new WeakMap()

  document.addEventListener('htmx:oobBeforeSwap', (event) => {
    const pre = event.detail.target
    if (!pre.matches('pre.log')) return
    event.detail.shouldSwap = false
    if (!views.has(pre)) views.set(pre, new LogView(pre))
    views.get(pre).receive(event.detail.fragment)
  })
})()
