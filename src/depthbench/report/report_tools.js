(() => {
  const { payload, plots, paint, seen, css, short, isDrawn } = window.depthbench;

  function save(name, content, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // RFC 4180; a text that a spreadsheet would run as a formula gets an apostrophe
  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  const plain = (html) => new DOMParser().parseFromString(html.replaceAll("<br>", "; "), "text/html").body.textContent;

  function mapRows(trace) {
    const rows = trace.z.flatMap((line, i) => line.map((z, j) => [plain(trace.name), trace.y[i], trace.x[j], z]));
    return [["model", "row", "column", "value"], ...rows];
  }

  function figureRows(name) {
    const { data, layout } = seen(name);
    if (data.length && data[0].type === "heatmap") return mapRows(data[0]);
    const title = (axis) => plain(((axis || {}).title || {}).text || "");
    const rows = [];
    for (const trace of data.filter((one) => one.visible !== false && one.hoverinfo !== "skip")) {
      const error = trace.error_y || {};
      // a cross has no loss, and is drawn beside its place
      const { lost } = trace.meta;
      (lost || trace.x).forEach((x, i) => {
        const words = Array.isArray(trace.text) ? trace.text[i] : trace.text;
        const bars = [(error.array || [])[i], (error.arrayminus || error.array || [])[i]];
        rows.push([plain(trace.name), x, lost ? null : trace.y[i], ...bars, plain(words || "")]);
      });
    }
    return [["name", title(layout.xaxis), title(layout.yaxis), "error above", "error below", "about"], ...rows];
  }

  function tableRows(table) {
    const heading = [...table.tHead.rows[0].cells].map((one) => one.textContent.trim());
    const value = (one) => (one.dataset.v === undefined ? one.textContent.trim() : one.dataset.v);
    return [heading, ...[...table.tBodies[0].rows].map((row) => [...row.cells].map(value))];
  }

  const stem = (name) => `${document.title.split(" · ")[0]}-${name}`.replace(/[^\w.-]+/g, "_");

  async function picture(plot, format) {
    if (!isDrawn(plot)) paint(plot);
    const ground = css("--card");
    const layout = { ...plot.layout, paper_bgcolor: ground, plot_bgcolor: ground };
    const size = { width: plot.clientWidth, height: plot.clientHeight, scale: format === "png" ? 2 : 1 };
    const address = await Plotly.toImage({ data: plot.data, layout }, { format, ...size });
    const link = document.createElement("a");
    link.href = address;
    link.download = `${stem(plot.dataset.figure)}.${format}`;
    link.click();
  }

  for (const button of document.querySelectorAll("button.tool")) {
    const { figure, table, kind } = button.dataset;
    button.addEventListener("click", () => {
      if (table) save(`${stem(table)}.csv`, csv(tableRows(document.getElementById(`table-${table}`))), "text/csv");
      else if (kind === "csv") save(`${stem(figure)}.csv`, csv(figureRows(figure)), "text/csv");
      else picture(plots.find((plot) => plot.dataset.figure === figure), kind);
    });
  }

  // two models' maps of one measure, on one scale
  const what = document.querySelector("select.map-what");
  const sides = [...document.querySelectorAll("select.map-side")];
  const maps = plots.filter((plot) => plot.classList.contains("map"));
  const at = { row: 0, column: 0 };
  const named = (side) => side.options[side.selectedIndex].textContent;
  const blank = { data: [], layout: { xaxis: { title: { text: "" } }, yaxis: { title: { text: "" } } } };
  const said = document.querySelector(".map-said");
  const hint = said && said.textContent;
  const map = () => payload.maps.find((one) => one.name === what.value);

  function chooseMaps() {
    const one = map();
    said.textContent = hint;
    for (const side of sides) {
      const name = `map-${side.dataset.side}`;
      const figure = one.figures[side.value];
      payload.figures[name] = figure || blank;
      const caption = document.querySelector(`.map-name[data-side="${side.dataset.side}"]`);
      caption.textContent = figure ? named(side) : `${named(side)}: not measured`;
    }
    document.querySelector(".map-colours").textContent = one.colours;
    document.querySelector(".map-shows").textContent = one.definition;
    document.querySelector(".map-not").textContent = one.blind;
  }

  // of the model on this plot's side, or where it is not measured of any that is
  function mapOn(plot) {
    const { figures } = map();
    const side = sides.find((one) => plot.dataset.figure === `map-${one.dataset.side}`);
    return (figures[side.value] || Object.values(figures)[0]).data[0];
  }

  function cellOf(row, column, plot) {
    const one = map();
    const shown = mapOn(plot);
    [at.row, at.column] = [shown.y.indexOf(row), shown.x.indexOf(column)];
    const parts = sides.map((side) => {
      const trace = (one.figures[side.value] || { data: [] }).data[0];
      if (!trace) return `${named(side)}: not measured`;
      const line = trace.z[trace.y.indexOf(row)] || [];
      const value = line[trace.x.indexOf(column)];
      const words = value === null || value === undefined ? "no value" : `${short(value)} ${trace.meta.unit}`.trim();
      return `${named(side)}: ${words}`;
    });
    const pair = shown.meta.words.replaceAll("{row}", short(row)).replaceAll("{column}", short(column));
    said.textContent = `${pair}: ${parts.join("; ")}`;
    const frame = { type: "rect", x0: column - 0.5, x1: column + 0.5, y0: row - 0.5, y1: row + 0.5 };
    const shapes = typeof row === "number" && typeof column === "number" ? [{ ...frame, line: { color: css("--ink"), width: 2 } }] : [];
    for (const plot of maps.filter(isDrawn)) Plotly.relayout(plot, { shapes });
  }

  function move(event) {
    const steps = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!steps) return;
    event.preventDefault();
    const trace = mapOn(event.currentTarget);
    // a smaller model may have been chosen since
    const within = (place, step, all) => Math.min(all.length - 1, Math.max(0, Math.min(all.length - 1, place) + step));
    const row = trace.y[within(at.row, steps[0], trace.y)];
    cellOf(row, trace.x[within(at.column, steps[1], trace.x)], event.currentTarget);
  }

  if (what) {
    window.depthbench.cell = cellOf;
    chooseMaps();
    for (const list of [what, ...sides]) {
      list.addEventListener("change", () => {
        chooseMaps();
        maps.filter(isDrawn).forEach(paint);
      });
    }
    for (const plot of maps) plot.addEventListener("keydown", move);
  }
  window.depthbench.start();
})();
