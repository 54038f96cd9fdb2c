"use strict";
(() => {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 600px)");
  const plots = [...document.querySelectorAll(".plot")];
  const chips = [...document.querySelectorAll(".legend .chip[data-label]")];
  const clear = document.querySelector(".chip.clear");
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
  // a page may hold a hundred plots: each is drawn when it comes near
  const drawn = new Set();
  const near = new IntersectionObserver(
    (seen) => seen.filter((one) => one.isIntersecting).forEach((one) => paint(one.target)),
    { rootMargin: "900px" },
  );
  let chosen = null;
  // what is chosen of each group of which the page shows one: depth, trial, signal
  const choice = {};

  // by figure: which of its axes the reader has chosen
  const axes = {};

  const colour = (label) => (label ? payload.marks[label][dark.matches ? "dark" : "light"] : css("--soft"));
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const alone = (trace) => trace.meta.alone;
  const opacity = (trace) => (chosen === null || alone(trace) || trace.meta.label === chosen ? 1 : 0.1);

  // a trace with the numbers and words of the axes that are chosen
  function placed(trace, { x, y }) {
    const { along, error, lost, text } = trace.meta;
    if (along) return { ...trace, ...along[x] };
    const errors = error[y] ? { type: "data", array: error[y], thickness: 1.2, width: 4 } : undefined;
    const meta = lost ? { ...trace.meta, lost: lost[x] } : trace.meta;
    return { ...trace, x: trace.meta.x[x], y: trace.meta.y[y], text: text ? text[y] : trace.text, error_y: errors, meta };
  }

  function painted(trace, chosenAxes) {
    const own = colour(trace.meta.label);
    const copy = { ...(chosenAxes ? placed(trace, chosenAxes) : trace), opacity: opacity(trace) };
    copy.marker = { ...trace.marker, color: own, line: { ...(trace.marker || {}).line, color: own } };
    // plotly takes empty tables out of what it is given: ours stay whole
    copy.meta = { ...copy.meta };
    if (trace.line) copy.line = { ...trace.line, color: own };
    if (copy.error_y) copy.error_y = { ...copy.error_y, color: own };
    const asked = Object.entries(trace.meta.shown).filter(([group]) => group in choice);
    if (asked.length) copy.visible = asked.every(([group, one]) => choice[group] === String(one));
    if (trace.colorbar) {
      const font = { color: css("--soft"), size: narrow.matches ? 10 : 12 };
      const title = { ...trace.colorbar.title, side: "right", font };
      copy.colorbar = { ...trace.colorbar, tickfont: font, title };
    }
    copy.hoverlabel = { bgcolor: css("--card"), bordercolor: own, font: { color: css("--ink") } };
    return copy;
  }

  function themed(layout) {
    const axis = { gridcolor: css("--line"), linecolor: css("--soft"), tickcolor: css("--soft"), zerolinecolor: css("--soft") };
    const small = narrow.matches ? { size: 11 } : { size: 13 };
    const font = { family: css("font-family") || getComputedStyle(document.body).fontFamily, color: css("--soft"), ...small };
    const title = (old) => ({ ...old, font: { ...font, color: css("--ink") } });
    const themedAxes = {};
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      themedAxes[name] = { ...layout[name], ...axis, title: title(layout[name].title) };
    }
    const xaxis = themedAxes.xaxis;
    if (narrow.matches) {
      xaxis.title.text = (xaxis.title.text || "").replace(", at L layers", "").replace(" and narrower", "");
      if (xaxis.tickvals && xaxis.tickvals.length > 5) {
        xaxis.tickvals = xaxis.tickvals.filter((_, index) => index % 2 === 0);
        xaxis.ticktext = xaxis.ticktext.filter((_, index) => index % 2 === 0);
      }
    }
    return { ...layout, font, ...themedAxes,
      modebar: { color: css("--soft"), activecolor: css("--accent"), bgcolor: "rgba(0,0,0,0)" } };
  }

  const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value));

  // a point or cell in words, below its figure
  function say(plot, point) {
    const { name, words, unit, value } = point.data.meta;
    const places = [["{row}", point.y], ["{column}", point.x], ["{}", point.x]];
    const pair = places.reduce((text, [hole, place]) => text.replaceAll(hole, short(place)), words);
    plot.parentNode.querySelector(".said").textContent = `${name}: ${pair}: ${short(point[value])} ${unit}`.trim();
  }

  function clicked(plot, point) {
    if (plot.classList.contains("map")) window.depthbench.cell(point.y, point.x, plot);
    else if (point.data.meta.words) say(plot, point);
    else if (!alone(point.data)) choose(point.data.meta.label);
  }

  // the data and layout of a figure as it is seen now
  function seen(name) {
    const figure = payload.figures[name];
    const own = axes[name];
    if (!own) return { data: figure.data.map((trace) => painted(trace)), layout: themed(figure.layout) };
    const layout = { ...figure.layout,
      xaxis: { ...figure.layout.xaxis, tickvals: null, ticktext: null, ...figure.axes.x[own.x] },
      yaxis: { ...figure.layout.yaxis, ...figure.axes.y[own.y] } };
    for (const axis of [layout.xaxis, layout.yaxis]) axis.title = { standoff: 12, ...axis.title };
    return { data: figure.data.map((trace) => painted(trace, own)), layout: themed(layout) };
  }

  function paint(plot) {
    const { data, layout } = seen(plot.dataset.figure);
    Plotly.react(plot, data, layout, config);
    if (drawn.has(plot)) return;
    drawn.add(plot);
    near.unobserve(plot);
    plot.on("plotly_click", (event) => clicked(plot, event.points[0]));
  }

  const every = [...Object.values(payload.figures), ...payload.maps.flatMap((one) => Object.values(one.figures))];
  for (const trace of every.flatMap((figure) => figure.data)) trace.meta.alone = "trial" in trace.meta.shown;
  for (const [name, figure] of Object.entries(payload.figures)) {
    if (figure.axes) axes[name] = { x: Object.keys(figure.axes.x)[0], y: Object.keys(figure.axes.y)[0] };
  }

  function draw() {
    drawn.forEach(paint);
    for (const line of document.querySelectorAll(".swatch line")) {
      line.setAttribute("stroke", colour(line.parentNode.dataset.label));
    }
  }

  function choose(label) {
    chosen = label === chosen ? null : label;
    for (const chip of chips) {
      chip.setAttribute("aria-pressed", String(chip.dataset.label === chosen));
      chip.classList.toggle("faded", chosen !== null && chip.dataset.label !== chosen);
    }
    for (const item of document.querySelectorAll("tr[data-label], li[data-label]")) {
      item.classList.toggle("faded", chosen !== null && item.dataset.label !== chosen);
    }
    clear.hidden = chosen === null;
    for (const plot of drawn) Plotly.restyle(plot, { opacity: plot.data.map(opacity) });
  }

  function sortBy(header, column) {
    const table = header.closest("table");
    const ascending = header.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const value = (row) => {
      const cell = row.cells[column];
      return cell.dataset.v === undefined ? cell.textContent.trim() : cell.dataset.v;
    };
    const rows = [...table.tBodies[0].rows].sort((one, two) => {
      const [a, b] = [value(one), value(two)];
      // a missing value stays last in both directions
      if (a === "" || b === "") return (a === "") - (b === "");
      const numbers = [Number(a), Number(b)];
      const order = numbers.some(Number.isNaN) ? a.localeCompare(b) : numbers[0] - numbers[1];
      return ascending ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      header.replaceChildren(button);
      button.addEventListener("click", () => sortBy(header, column));
    });
  }
  for (const chip of chips) chip.addEventListener("click", () => choose(chip.dataset.label));
  clear.addEventListener("click", () => choose(chosen));
  for (const button of document.querySelectorAll("button.panel")) {
    const { group, panel } = button.dataset;
    if (button.getAttribute("aria-pressed") === "true") choice[group] = panel;
    button.addEventListener("click", () => {
      choice[group] = panel;
      for (const other of document.querySelectorAll(`button.panel[data-group="${group}"]`)) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      draw();
    });
  }
  for (const list of document.querySelectorAll("select.panel")) {
    choice[list.dataset.group] = list.value;
    list.addEventListener("change", () => {
      choice[list.dataset.group] = list.value;
      draw();
    });
  }
  for (const list of document.querySelectorAll("select.axis")) {
    const name = list.dataset.for;
    list.addEventListener("change", () => {
      axes[name][list.dataset.side] = list.value;
      plots.filter((plot) => plot.dataset.figure === name).forEach(paint);
    });
  }
  window.depthbench = { payload, plots, paint, seen, css, short, isDrawn: (plot) => drawn.has(plot) };
  window.depthbench.start = () => {
    draw();
    for (const plot of plots) near.observe(plot);
  };
  addEventListener("beforeprint", () => plots.forEach(paint));
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
})();
