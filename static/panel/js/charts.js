// The history of a host on the GPU page: ranges, zoom, and new points from one request at a time (chart.js draws).
(function () {
  'use strict'

  const SECONDS = 900 // ranges up to this show each second
  const MOST_WAIT = 60 // s between requests where a point covers many seconds
  const LOST = 45 // s without an answer after which the stream does not reach back: load all again
  const PATIENCE = 10000 // ms
  const RETRY = 10 // s at most until the panel is asked again that did not answer or has nothing new
  const FIRST = 300
  const language = document.documentElement.lang
  const clock = new Intl.DateTimeFormat(language, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })
  const short = new Intl.DateTimeFormat(language, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
  const day = new Intl.DateTimeFormat(language, { month: 'numeric', day: 'numeric' })
  const date = (seconds) => new Date(seconds * 1000)

  function stored(name, value) {
    try {
      if (value !== undefined) localStorage.setItem(name, value)
      return localStorage.getItem(name)
    } catch (error) { // storage may be switched off
      return null
    }
  }

  class History {
    constructor(section) {
      this.section = section
      this.key = section.id
      this.range = Number(stored('panel-history-range')) || FIRST
      this.only = '' // the one card that is shown, or all
      this.part = null // [from, to] after a zoom
      this.points = null
      this.ahead = 0 // s by which the panel's clock is ahead of this one
      this.asked = 0
      this.round = 0 // answers to an older question are dropped
      this.busy = false
      this.failures = 0 // in a row
      this.last = null // the newest moment of which the panel told
      this.over = false
      this.drawn = false
      this.clock = (plot, ticks) => this.ticks(ticks)
      this.find('[data-range]').forEach((button) => button.addEventListener('click', () => this.choose(Number(button.dataset.range))))
      this.one('[data-whole]').addEventListener('click', () => this.whole())
      this.one('[data-all-cards]').addEventListener('click', () => this.show(''))
      this.place = this.one('.history-charts')
      this.charts = [...this.find('.chart')].map((figure) => new PanelChart(figure, this))
      // A finger on the glass is not a pointer that rests.
      this.place.addEventListener('pointerenter', (event) => { this.over = event.pointerType !== 'touch' })
      this.place.addEventListener('pointerleave', () => { this.over = false })
      section.addEventListener('toggle', () => this.toggled())
      new ResizeObserver(() => this.charts.forEach((chart) => chart.resize())).observe(this.place)
      this.press()
      if (section.open) this.toggled()
    }

    one(selector) { return this.section.querySelector(selector) }
    find(selector) { return this.section.querySelectorAll(selector) }
    now() { return Date.now() / 1000 + this.ahead }

    toggled() {
      if (this.section.open) this.load()
    }

    press() {
      this.find('[data-range]').forEach((button) => button.setAttribute('aria-pressed', String(Number(button.dataset.range) === this.range)))
    }

    choose(range) {
      this.range = range
      this.part = null
      stored('panel-history-range', String(range))
      this.press()
      this.load()
    }

    show(subject) {
      this.only = subject
      if (this.points) this.draw()
    }

    // The cards as the page's table has them now, then the host.
    subjects() {
      const { subject, name } = this.section.dataset
      if (subject) return [{ key: subject, label: '', name, colour: 0 }]
      const rows = document.querySelectorAll(`#gpus [data-subject][data-host="${this.section.dataset.host}"]`)
      const cards = [...rows].map((row, colour) => ({ key: row.dataset.subject, label: row.dataset.label, name: row.dataset.name, colour }))
      return [...cards, { key: 'host', label: '', name: '', colour: 0 }]
    }

    async ask(since) {
      const query = new URLSearchParams({ host: this.section.dataset.host, range: String(this.range) })
      this.subjects().forEach((subject) => query.append('subject', subject.key))
      if (since !== null) query.set('since', String(since))
      const answer = await fetch(`${this.section.dataset.url}?${query}`, { signal: AbortSignal.timeout(PATIENCE) })
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status))
      return answer.json()
    }

    async request(since) {
      const round = this.round
      this.busy = true
      this.asked = Date.now()
      try {
        const found = await this.ask(since)
        if (round !== this.round) return
        this.failures = 0
        this.ahead = found.now - Date.now() / 1000
        if (since === null) this.points = { ...found, range: this.range }
        else this.join(found)
        this.last = this.points.times[this.points.times.length - 1] || this.last
        this.draw()
      } catch (error) { // no answer in time, no connection, or a refusal: the words on the page say it
        if (round === this.round) this.failures += 1
      } finally {
        if (round === this.round) this.busy = false
        this.say()
      }
    }

    // What is drawn stays until the answer comes.
    load() {
      this.round += 1
      this.request(null)
      this.say()
    }

    // Newer points take the place of those from the first of them on: the last one may not have been whole.
    join(found) {
      const points = this.points
      points.marks = found.marks
      const first = found.times.length ? found.times[0] : Infinity
      let keep = points.times.length
      while (keep && points.times[keep - 1] >= first) keep -= 1
      const from = points.times.findIndex((time) => time >= this.now() - this.range - points.step)
      const cut = (values, more, count) => [
        ...(values || Array(points.times.length).fill(null)).slice(from < 0 ? keep : from, keep),
        ...(more || Array(count).fill(null)),
      ]
      for (const subject of new Set([...Object.keys(points.series), ...Object.keys(found.series)])) {
        const own = points.series[subject] || (points.series[subject] = {})
        const new_ = found.series[subject] || {}
        for (const field of new Set([...Object.keys(own), ...Object.keys(new_)])) {
          const have = own[field] || {}
          const more = new_[field] || {}
          own[field] = { mean: cut(have.mean, more.mean, found.times.length) }
          if (points.step === 1) continue
          own[field].low = cut(have.low, more.low, found.times.length)
          own[field].high = cut(have.high, more.high, found.times.length)
        }
      }
      points.times = cut(points.times, found.times, 0)
    }

    window() {
      if (this.part) return this.part
      const end = this.now()
      return [end - this.range, end]
    }

    zoom(from, to) {
      if (to - from < 2) return
      this.part = [from, to]
      this.draw()
      this.say()
    }

    whole() {
      this.part = null
      this.draw()
      this.say()
    }

    // Rows for the charts: a hole in time has a row without values at each end, so that no line crosses it.
    frame() {
      const { times, step } = this.points
      const [start, end] = [this.now() - this.range, this.now()]
      const frame = { times: [], rows: [], last: -1 }
      const add = (time, row) => { frame.times.push(time); frame.rows.push(row) }
      let before = start
      times.forEach((time, row) => {
        if (time - before > 1.5 * step && time - before > 2) {
          add(before + (row ? step / 2 : 0), -1)
          if (time - step / 2 > frame.times[frame.times.length - 1]) add(time - step / 2, -1)
        }
        if (row === times.length - 1 && this.current()) frame.last = frame.times.length
        add(time, row)
        before = time
      })
      if (end - before > 2 * step) {
        add(before + step / 2, -1)
        add(end, -1)
      }
      return frame
    }

    // Whether the newest point says how it is now.
    current() {
      const times = this.points.times
      return times.length > 0 && this.now() - times[times.length - 1] < Math.max(5, 3 * this.points.step)
    }

    draw() {
      if (!this.points) return
      const subjects = this.subjects().filter((subject) => !this.only || subject.key === this.only || subject.key === 'host')
      const known = Object.values(this.points.series).some((fields) => Object.values(fields).some((field) => field.mean.some((value) => value != null)))
      this.place.hidden = !known
      this.one('.history-empty').hidden = known
      this.one('[data-all-cards]').hidden = !this.only
      this.one('[data-whole]').hidden = !this.part
      if (!known) return
      const frame = this.frame()
      this.charts.forEach((chart) => chart.show(this.points, frame, subjects, this.points.marks))
      this.list()
    }

    // The marks in words, for those who see no line or have no pointer to rest on it.
    list() {
      const [from, to] = this.window()
      const seen = this.points.marks.filter((mark) => mark.time >= from && mark.time <= to).reverse()
      const words = JSON.stringify(seen)
      if (words === this.listed) return
      this.listed = words
      this.one('.history-marks').hidden = !seen.length
      this.one('.history-count').textContent = seen.length.toLocaleString(language)
      this.one('.history-marks ul').replaceChildren(...seen.map((mark) => PanelChart.item(mark, this.moment(mark.time))))
    }

    moment(seconds) {
      const time = clock.format(date(seconds))
      return this.range > 43200 ? `${day.format(date(seconds))} ${time}` : time
    }

    ticks(times) {
      const long = times.length > 1 && times[times.length - 1] - times[0] > 86400
      const dense = times.length > 1 && times[1] - times[0] < 60
      return times.map((time) => {
        const midnight = short.format(date(time)) === '00:00'
        if (long && midnight) return day.format(date(time))
        return (dense ? clock : short).format(date(time))
      })
    }

    pointed(seconds) {
      this.one('.history-time').textContent = seconds === null ? '' : this.moment(seconds)
    }

    // Whether the points are those of the range, and the panel's stream of new ones reaches back to the last.
    joinable() {
      if (!this.points || this.points.range !== this.range || !this.points.times.length) return false
      return this.range > SECONDS || this.now() - this.points.times[this.points.times.length - 1] <= LOST
    }

    wait() {
      if (this.failures) return Math.min(2 ** this.failures, RETRY)
      if (!this.joinable()) return RETRY
      return this.range <= SECONDS ? 1 : Math.min(Math.max(10, this.points.step), MOST_WAIT)
    }

    tick() {
      if (!this.section.open) return
      const rests = this.over || document.hidden
      if (!rests && !this.busy && Date.now() - this.asked >= this.wait() * 1000 - 100) this.renew()
      this.say()
    }

    renew() {
      return this.request(this.joinable() ? this.points.times[this.points.times.length - 1] : null)
    }

    say() {
      const element = this.one('.history-state')
      const answered = this.points && this.points.range === this.range
      const state = this.failures ? 'stale'
        : !answered ? 'loading'
          : this.over ? 'paused'
            : !this.current() ? 'stale' : this.part ? 'zoomed' : 'live'
      this.one('.history-error').hidden = !this.failures
      element.dataset.state = state
      const since = this.last === null ? '' : this.moment(this.last)
      element.textContent = state === 'stale' && !since ? '' : element.dataset[state].replace('%t', since)
    }
  }

  function begin() {
    const all = [...document.querySelectorAll('details.history')].map((section) => new History(section))
    setInterval(() => all.forEach((history) => history.tick()), 1000)
    new MutationObserver(() => all.forEach((history) => history.charts.forEach((chart) => chart.repaint())))
      .observe(document.documentElement, { attributes: true, attributeFilter: ['data-bs-theme'] })
    all.filter((history) => location.hash === `#${history.section.id}`).forEach((history) => { history.section.open = true })
    document.addEventListener('click', (event) => {
      const link = event.target.closest('a[data-charts]')
      const history = link && all.find((one) => `#${one.section.id}` === link.hash)
      if (!history) return
      history.show(link.dataset.charts)
      history.section.open = true
    })
  }
  begin()
})()
