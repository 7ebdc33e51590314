// One chart of the history: a uPlot with one line for each card and field, bands, marks, and its values in words.
// Its figure says what it draws: data-kind, data-fields, data-words, data-unit, data-divide, data-digits, data-top.
(function () {
  'use strict'

  const HEIGHT = 112
  const GUTTER = 52 // px for the numbers, the same in all charts: their times stand below each other
  const NEAR = 6 // px between the pointer and a mark that it names
  const PALETTE = 8
  const MARKS = { start: '--blue', ready: '--green', crash: '--red' }
  const DASHES = { start: [4, 3], ready: [1, 2], crash: [] }
  const language = document.documentElement.lang

  // Points without a neighbour, which no line shows.
  function lonely(plot, index) {
    const values = plot.data[index]
    const found = []
    for (let i = 0; i < values.length; i += 1) {
      if (values[i] != null && values[i - 1] == null && values[i + 1] == null) found.push(i)
    }
    return found
  }

  // Values of one field at the rows of the chart; -1 is a row in a hole.
  function column(values, rows, divide) {
    return rows.map((row) => {
      const value = row < 0 || !values ? null : values[row]
      return value == null ? null : value / divide
    })
  }

  class PanelChart {
    // The owner says what is seen: window() -> [from, to], zoom(from, to), whole(), pointed(seconds or null).
    constructor(figure, owner) {
      this.figure = figure
      this.owner = owner
      this.place = figure.querySelector('.chart-plot')
      this.values = figure.querySelector('.chart-values')
      this.kind = figure.dataset.kind
      this.fields = figure.dataset.fields.split(' ')
      this.words = figure.dataset.words ? figure.dataset.words.split('|') : []
      this.divide = Number(figure.dataset.divide)
      this.top = figure.dataset.top ? Number(figure.dataset.top) : null
      const digits = Number(figure.dataset.digits)
      this.format = new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits })
      this.lines = []
      this.marks = []
      this.plot = null
      this.made = ''
      this.tip = document.createElement('div')
      this.tip.className = 'chart-tip'
      this.tip.hidden = true
    }

    // frame: {times, rows, last: row of the newest values or -1}; points: the answer of the panel.
    show(points, frame, subjects, marks) {
      const own = subjects.filter((subject) => subject.key.split(':')[0] === this.kind)
      this.figure.hidden = own.length === 0
      if (this.figure.hidden) return
      const banded = points.step > 1
      const made = JSON.stringify([own, banded])
      this.frame = frame
      this.marks = marks
      if (made !== this.made) {
        this.lines = own.flatMap((subject) => this.fields.map((field, number) => ({ subject, field, number })))
        this.words_(own)
      }
      const data = [frame.times]
      for (const { subject, field } of this.lines) {
        const of = (points.series[subject.key] || {})[field] || {}
        data.push(column(of.mean, frame.rows, this.divide))
        if (banded) data.push(column(of.low, frame.rows, this.divide), column(of.high, frame.rows, this.divide))
      }
      if (made === this.made) this.plot.setData(data)
      else this.make(banded, data)
      this.made = made
      this.tell(null)
    }

    colours() {
      const style = getComputedStyle(this.figure)
      const value = (name) => style.getPropertyValue(name).trim()
      this.ink = value('--ink-soft')
      this.grid = value('--chart-grid')
      this.palette = Array.from({ length: PALETTE }, (_, number) => value(`--chart-${number}`))
      this.markColours = Object.fromEntries(Object.entries(MARKS).map(([kind, name]) => [kind, value(name)]))
    }

    make(banded, data) {
      this.clear()
      this.colours()
      const series = [{}]
      const bands = []
      for (const { subject, number } of this.lines) {
        const colour = () => this.palette[subject.colour % PALETTE]
        const points = { show: true, size: 4, fill: colour, filter: lonely }
        series.push({ stroke: colour, width: 1.5, dash: number ? [5, 4] : undefined, points })
        if (!banded) continue
        const edge = { stroke: 'transparent', width: 0, points: { show: false } }
        series.push({ ...edge }, { ...edge })
        bands.push({ series: [series.length - 1, series.length - 2], fill: () => colour() + '2e' })
      }
      const axis = { stroke: () => this.ink, font: '11px system-ui, sans-serif', gap: 3 }
      const lines = { stroke: () => this.grid, width: 1 }
      const options = {
        width: this.place.clientWidth,
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false },
          points: { size: 6, width: 0 },
          bind: { dblclick: () => () => this.owner.whole() },
          sync: { key: this.owner.key, scales: ['x', null], filters: { pub: (type) => type === 'mousemove' } },
        },
        scales: { x: { range: () => this.owner.window() }, y: { range: (plot, low, high) => this.scale(high) } },
        axes: [
          { ...axis, grid: lines, ticks: { ...lines, size: 3 }, size: 22, space: 64, values: this.owner.clock },
          { ...axis, grid: lines, ticks: { show: false }, size: GUTTER, space: 26, values: (plot, ticks) => ticks.map((tick) => tick.toLocaleString(language)) },
        ],
        series,
        bands,
        hooks: {
          draw: [(plot) => this.drawMarks(plot)],
          setCursor: [(plot) => this.point(plot)],
          setSelect: [(plot) => this.select(plot)],
        },
      }
      this.plot = new uPlot(options, data, this.place)
      this.plot.over.append(this.tip)
    }

    clear() {
      if (this.plot) this.plot.destroy()
      this.plot = null
      this.made = ''
    }

    repaint() {
      if (!this.plot) return
      this.colours()
      this.plot.redraw(false, true)
    }

    resize() {
      const width = this.place.clientWidth
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT })
    }

    scale(high) {
      if (this.top !== null) return [0, this.top]
      return [0, high > 0 ? high * 1.1 : 1]
    }

    drawMarks(plot) {
      const { ctx, bbox } = plot
      const ratio = uPlot.pxRatio
      ctx.save()
      ctx.lineWidth = 1.5 * ratio
      for (const mark of this.marks) {
        const x = Math.round(plot.valToPos(mark.time, 'x', true))
        if (x < bbox.left || x > bbox.left + bbox.width) continue
        ctx.strokeStyle = ctx.fillStyle = this.markColours[mark.kind]
        ctx.setLineDash(DASHES[mark.kind].map((part) => part * ratio))
        ctx.beginPath()
        ctx.moveTo(x, bbox.top)
        ctx.lineTo(x, bbox.top + bbox.height)
        ctx.stroke()
        ctx.beginPath()
        ctx.moveTo(x - 4 * ratio, bbox.top - 4 * ratio)
        ctx.lineTo(x + 4 * ratio, bbox.top - 4 * ratio)
        ctx.lineTo(x, bbox.top + 2 * ratio)
        ctx.fill()
      }
      ctx.restore()
    }

    // A mark in words, with its colour.
    static item(mark, moment) {
      const item = document.createElement('li')
      const dot = document.createElement('span')
      dot.className = `history-mark is-${mark.kind}`
      item.append(dot, `${moment} ${mark.label}`)
      return item
    }

    select(plot) {
      const { left, width } = plot.select
      if (width < 1) return
      const ends = [plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]
      plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
      this.owner.zoom(...ends)
    }

    point(plot) {
      if (plot !== this.plot) return
      const { left, idx } = plot.cursor
      const away = left == null || left < 0 || idx == null
      this.tell(away ? null : idx)
      const under = !away && plot.over.matches(':hover')
      if (under) this.owner.pointed(plot.data[0][idx])
      else if (away) this.owner.pointed(null)
      const near = under ? this.marks.filter((mark) => Math.abs(plot.valToPos(mark.time, 'x') - left) <= NEAR) : []
      this.tip.hidden = !near.length
      if (!near.length) return
      this.tip.textContent = near.map((mark) => `${this.owner.moment(mark.time)} ${mark.label}`).join('\n')
      const right = left > plot.over.clientWidth / 2
      this.tip.style.left = right ? 'auto' : `${left + 8}px`
      this.tip.style.right = right ? `${plot.over.clientWidth - left + 8}px` : 'auto'
    }

    // A place for each value: a key in the line's colour, the card's number, and the value.
    words_(own) {
      this.values.replaceChildren(...this.lines.map((line) => {
        const item = document.createElement('span')
        item.className = 'chart-value'
        item.title = line.subject.name
        const key = document.createElement('span')
        key.className = `chart-key chart-key-${line.subject.colour % PALETTE}${line.number ? ' is-dashed' : ''}`
        const words = [own.length > 1 ? line.subject.label : '', this.words[line.number] || '']
        line.text = document.createElement('b')
        item.append(key, words.filter(Boolean).join(' '), ' ', line.text)
        return item
      }))
    }

    // Says the values at a place of the chart, the last ones for null; a dash is what nobody knows.
    tell(index) {
      const at = index === null ? this.frame.last : index
      const unit = this.figure.dataset.unit
      const data = this.plot.data
      const wide = (data.length - 1) / this.lines.length
      this.lines.forEach((line, number) => {
        const value = at < 0 ? null : data[1 + number * wide][at]
        line.text.textContent = value == null ? '–' : `${this.format.format(value)} ${unit}`
      })
    }
  }

  window.PanelChart = PanelChart
})()
