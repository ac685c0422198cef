"use strict";
// The pages of the report: overview, list of cases, case.
(() => {
  const { h, byId, load, flip, shortened, DASH } = report;

  // Scenes can be large: only the latest stay.
  function forgetScenes() {
    const scenes = [...report.kept.keys()].filter((name) => name.startsWith("cases/"));
    for (const name of scenes.slice(0, -4)) report.kept.delete(name);
  }

  // ---- where we are: everything stands in the address, so that a link leads back to it

  const KEYS = ["task", "case", "model", "versus", "metric", "q", "status", "attr", "is", "min", "max", "sort", "desc"];

  function place() {
    const given = new URLSearchParams(location.hash.slice(1));
    const found = {};
    for (const key of KEYS) found[key] = given.get(key) || "";
    return found;
  }

  function link(where) {
    const found = new URLSearchParams();
    for (const key of KEYS) if (where[key]) found.set(key, where[key]);
    return "#" + found.toString();
  }

  function go(changes, replace) {
    const next = link({ ...place(), ...changes });
    if (replace) { history.replaceState(null, "", next); render(); }
    else if (next !== location.hash) location.hash = next;
  }

  // ---- the list

  const ROW = 36;
  const MOST_ROWS = 400;
  let book = null;
  let page = { kind: "", close() {} };
  const number = (value, decimals) => (value === null || value === undefined ? DASH : value.toFixed(decimals));
  const BAD = new Set(["failed", "missed", "hallucinated", "wrong", "unparsed", "refused", "empty"]);
  const GOOD = new Set(["right"]);
  const badge = (status) => !status ? DASH : h("span", { class: "badge" + (BAD.has(status) ? " bad" : GOOD.has(status) ? " good" : "") }, status);

  function prepared(data) {
    if (!data.texts) {
      data.texts = data.cases.map((id, at) => [
        id, data.patients[at] || "", (data.about && data.about[at]) || "",
        ...data.attributes.map((one) => one.values[one.codes[at]]),
      ].join("\n").toLowerCase());
      data.drawn = new Set(data.pictured);
      data.places = new Map(data.cases.map((id, at) => [id, at]));
    }
    return data;
  }

  const modelAt = (data, name) => data.models.findIndex((one) => one.name === name);
  const metricAt = (data, title) => Math.max(0, data.metrics.findIndex((one) => one.title === title));
  const statusOf = (data, model, at) => {
    const codes = model < 0 ? data.status.map((one) => one[at]).filter((one) => one >= 0) : [data.status[model][at]];
    const worst = codes.length ? Math.min(...codes) : -1;
    return worst < 0 ? "" : data.statuses[worst];
  };

  // The columns of numbers: each model by one metric, or each metric of one model.
  function columnsOf(data, where) {
    const model = modelAt(data, where.model);
    if (model >= 0) return data.metrics.map((metric, at) => ({ title: metric.title, metric, values: data.values[model][at] }));
    const metric = metricAt(data, where.metric);
    if (!data.metrics.length) return []; // such as of scores that judge whole runs
    return data.models.map((one, at) => ({ title: one.name, metric: data.metrics[metric], values: data.values[at][metric] }));
  }

  function meanOver(data, metric) {
    if (!data.metrics.length) return null;
    data.means = data.means || {};
    if (!data.means[metric]) {
      data.means[metric] = data.cases.map((_, at) => {
        const found = data.values.map((model) => model[metric][at]).filter((value) => value !== null);
        return found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : null;
      });
    }
    return data.means[metric];
  }

  function matching(data, where) {
    const words = where.q.toLowerCase().split(/\s+/).filter(Boolean);
    const model = modelAt(data, where.model);
    const metric = metricAt(data, where.metric);
    const attribute = data.attributes.find((one) => one.name === where.attr);
    const code = attribute ? attribute.values.indexOf(where.is) : -1;
    const low = where.min === "" ? -Infinity : Number(where.min);
    const high = where.max === "" ? Infinity : Number(where.max);
    const bounded = where.min !== "" || where.max !== "";
    const judged = model >= 0 ? [data.values[model][metric]] : data.values.map((one) => one[metric]);
    const codes = model >= 0 ? [data.status[model]] : data.status;
    const status = data.statuses.indexOf(where.status);
    const found = [];
    for (let at = 0; at < data.cases.length; at++) {
      if (words.length && !words.every((word) => data.texts[at].includes(word))) continue;
      if (attribute && code >= 0 && attribute.codes[at] !== code) continue;
      if (status >= 0 && !codes.some((one) => one[at] === status)) continue;
      if (bounded && !judged.some((one) => one && one[at] !== null && one[at] >= low && one[at] <= high)) continue;
      found.push(at);
    }
    return found;
  }

  function ordered(data, where) {
    const found = matching(data, where);
    const model = modelAt(data, where.model);
    const metric = metricAt(data, where.metric);
    const sort = where.sort || "worst";
    const turn = where.desc ? -1 : 1;
    if (sort === "case") return turn < 0 ? found.reverse() : found;
    if (sort === "name") return found.sort((a, b) => turn * data.cases[a].localeCompare(data.cases[b], undefined, { numeric: true }));
    if (sort === "status") return found.sort((a, b) => turn * (data.statuses.indexOf(statusOf(data, model, a)) - data.statuses.indexOf(statusOf(data, model, b))));
    let values = null;
    let better = 1;
    if (sort.startsWith("v")) {
      const column = columnsOf(data, where)[Number(sort.slice(1))];
      values = column && column.values;
    }
    if (!values) {
      values = model >= 0 ? data.values[model][metric] : meanOver(data, metric);
      better = data.metrics[metric] && data.metrics[metric].higher === false ? -1 : 1;
    }
    if (!values) return found;
    const known = found.filter((at) => values[at] !== null);
    const unknown = found.filter((at) => values[at] === null);
    known.sort((a, b) => turn * better * (values[a] - values[b]) || a - b);
    return known.concat(unknown);
  }

  // Attributes that stand in the list: those that divide the cases, and few enough to leave room.
  function extraOf(data) {
    const dividing = data.attributes.filter((one) => one.values.length > 1 && one.values.length < data.cases.length);
    return dividing.slice(0, data.about ? 2 : 4);
  }

  function field(label, control) { return h("label", null, label, control); }

  function choice(label, options, chosen, onchange) {
    const select = h("select", { onchange: () => onchange(select.value), "aria-label": label });
    for (const [value, text] of options) select.append(h("option", { value, selected: value === chosen }, text));
    select.value = chosen;
    return field(label, select);
  }

  // The task's own table and figure, as they stand in the overview.
  function results(entry) {
    const shown = byId(`task-${entry.number}`);
    if (!shown || !shown.querySelector(".wide")) return []; // such as of probabilities alone
    const parts = [...shown.querySelectorAll(".wide, .drawn")].map((one) => one.cloneNode(true));
    return h("details", { class: "card results" }, h("summary", null, "Results of the task"), parts);
  }

  function listPage(data, where) {
    const entry = book.tasks.find((one) => one.task === data.task);
    const root = h("div");
    const filters = h("form", { class: "filters", role: "search", "aria-label": "Filter the cases", onsubmit: (event) => event.preventDefault() });
    const count = h("span", { class: "count", role: "status" });
    const heads = h("div", { class: "heads line", role: "row" });
    const all = h("div", { class: "all", role: "rowgroup" });
    const rows = h("div", { class: "rows", tabindex: "0", role: "table", "aria-label": "Cases" }, h("div", { role: "rowgroup", class: "top" }, heads), all);
    const search = h("input", { type: "search", id: "search", placeholder: "Case, attribute, question …", value: where.q, "aria-label": "Text", oninput: () => go({ q: search.value }, true) });
    const change = (changes) => go({ sort: "", desc: "", ...changes }, true);
    const controls = h("span", { style: "display:contents" });
    filters.append(field("Text", search), controls, count);
    root.append(
      ...entry.warnings.map((text) => h("p", { class: "note" }, text)),
      h("div", { class: "head" }, h("h1", null, entry.title), h("span", { class: "soft small" }, entry.description || "")),
      ...[results(entry)].flat(),
      filters,
      h("div", { class: "list" }, rows),
    );
    let order = [];
    let marked = 0;
    let now = where;
    let shownFilters = "";

    function drawControls() {
      const key = [now.model, now.metric, now.attr].join("\n");
      if (key === shownFilters) return;
      shownFilters = key;
      const metrics = data.metrics.map((one) => [one.title, one.title]);
      const limit = (key, label) => field(label, h("input", { type: "number", step: "any", value: now[key], "aria-label": label, oninput: (event) => go({ [key]: event.target.value }, true) }));
      const attribute = data.attributes.find((one) => one.name === now.attr);
      controls.replaceChildren(
        choice("Model", [["", "All models"], ...data.models.map((one) => [one.name, one.name])], now.model, (value) => change({ model: value })),
        ...(metrics.length ? [choice("Metric", metrics, now.metric || metrics[0][0], (value) => change({ metric: value }))] : []),
        limit("min", "From"), limit("max", "To"),
        choice("Status", [["", "Any"], ...data.statuses.filter((_, at) => data.status.some((codes) => codes.includes(at))).map((one) => [one, one])], now.status, (value) => go({ status: value }, true)),
        ...(data.attributes.length ? [choice("Attribute", [["", "Any"], ...data.attributes.map((one) => [one.name, one.name])], now.attr, (value) => go({ attr: value, is: "" }, true))] : []),
        ...(attribute ? [choice("Value", [["", "Any"], ...attribute.values.map((one) => [one, one || "unknown"])], now.is, (value) => go({ is: value }, true))] : []),
        h("button", { type: "button", onclick: () => { search.value = ""; shownFilters = ""; location.hash = link({ task: data.task }); } }, "Clear"),
      );
    }

    function drawHeads() {
      const columns = columnsOf(data, now);
      const extra = extraOf(data);
      const widths = widthsOf(columns, extra);
      rows.style.setProperty("--columns", widths.map(([least, share]) => `minmax(${least}rem,${share}fr)`).join(" "));
      rows.style.setProperty("--least", `${widths.reduce((sum, [least]) => sum + least, 0)}rem`);
      const sorted = now.sort || "worst";
      const titles = shortened(columns.map((one) => one.title));
      const head = (title, key, kind, whole = title) => h("button", {
        type: "button", role: "columnheader", class: kind || "", title: `Sort by ${whole}`, "aria-label": whole === title ? null : whole,
        "aria-sort": sorted === key ? (now.desc ? "descending" : "ascending") : null,
        onclick: () => go({ sort: key, desc: sorted === key && !now.desc ? "1" : "" }, true),
      }, title + (sorted === key ? (now.desc ? " ↓" : " ↑") : ""));
      heads.replaceChildren(
        head("Case", "name", "id"),
        ...(data.about ? [h("button", { type: "button", disabled: true, role: "columnheader" }, "Question")] : []),
        ...extra.map((one) => h("button", { type: "button", disabled: true, role: "columnheader" }, one.name)),
        head("Status", "status"),
        ...columns.map((one, at) => head(titles[at], "v" + at, "number", one.title)),
        head(sorted === "worst" && now.desc ? "Best first" : "Worst first", "worst", "number"),
      );
    }

    // Of each column the least width in rem, and its share of what is left.
    const widthsOf = (columns, extra) => [[9, 1.3], ...(data.about ? [[10, 2.4]] : []), ...extra.map(() => [6, 0.8]), [7.2, 0.1], ...columns.map(() => [columns.length > 4 ? 8 : 6, 1]), [8, 0.1]];

    function drawRows() {
      const from = Math.max(0, Math.floor(rows.scrollTop / ROW) - 8);
      const to = Math.min(order.length, Math.ceil((rows.scrollTop + rows.clientHeight) / ROW) + 8);
      draw(from, to);
    }

    function draw(from, to) {
      const columns = columnsOf(data, now);
      const ranges = columns.map(({ values }) => rangeOf(values));
      const model = modelAt(data, now.model);
      const extra = extraOf(data);
      const made = [];
      for (let row = from; row < to; row++) {
        const at = order[row];
        const status = statusOf(data, model, at);
        made.push(h("a", {
          class: "line" + (row === marked ? " marked" : ""), role: "row", "aria-rowindex": row + 1, style: `top:${row * ROW}px`,
          href: link({ ...now, case: data.cases[at] }), tabindex: "-1",
        },
        h("span", { class: "cell id", role: "cell", title: data.cases[at] }, data.cases[at]),
        data.about ? h("span", { class: "cell soft", role: "cell" }, data.about[at] || DASH) : null,
        extra.map((one) => h("span", { class: "cell soft", role: "cell" }, one.values[one.codes[at]] || DASH)),
        h("span", { class: "cell", role: "cell" }, badge(status)),
        columns.map(({ metric, values }, place) => {
          const value = values ? values[at] : null;
          const [low, high] = ranges[place];
          const share = value === null || high <= low ? 0 : (value - low) / (high - low);
          return h("span", { class: "cell number", role: "cell" }, value === null ? null : h("i", { style: `width:${(100 * share).toFixed(1)}%` }), number(value, metric.decimals));
        }),
        h("span", { class: "cell number soft small", role: "cell" }, data.drawn.has(at) ? "pictures" : DASH)));
      }
      all.replaceChildren(...made, ...(order.length ? [] : [h("p", { class: "empty" }, "No case is left by these filters.")]));
    }

    function update(next) {
      const moved = link({ ...next, case: "" }) !== link({ ...now, case: "" });
      now = next;
      if (document.activeElement !== search && search.value !== now.q) search.value = now.q;
      order = ordered(data, now);
      if (moved) { marked = 0; rows.scrollTop = 0; }
      all.style.height = `${Math.max(order.length, 1) * ROW}px`;
      count.textContent = `${order.length.toLocaleString("en")} of ${data.cases.length.toLocaleString("en")} cases`;
      drawControls();
      drawHeads();
      drawRows();
    }

    function mark(by) {
      marked = Math.max(0, Math.min(order.length - 1, marked + by));
      const top = marked * ROW;
      if (top < rows.scrollTop) rows.scrollTop = top;
      const room = rows.clientHeight - heads.offsetHeight; // the heads stay above the rows
      if (top + ROW > rows.scrollTop + room) rows.scrollTop = top + ROW - room;
      drawRows();
    }

    let asked = 0;
    rows.addEventListener("scroll", () => { cancelAnimationFrame(asked); asked = requestAnimationFrame(drawRows); });
    const resized = () => drawRows();
    const printing = () => { all.style.height = `${Math.min(order.length, 1000) * ROW}px`; draw(0, Math.min(order.length, 1000)); };
    window.addEventListener("resize", resized);
    window.addEventListener("beforeprint", printing);
    window.addEventListener("afterprint", drawRows);
    return {
      kind: "list", task: data.task, root, update, search,
      focusCase(id) { const at = order.indexOf(data.places.get(id)); if (at >= 0) { marked = at; mark(0); } },
      keys: { j: () => mark(1), k: () => mark(-1), Enter: () => order.length && go({ case: data.cases[order[marked]] }), Escape: () => { location.hash = ""; } },
      close() {
        window.removeEventListener("resize", resized);
        window.removeEventListener("beforeprint", printing);
        window.removeEventListener("afterprint", drawRows);
      },
    };
  }

  const ranges = new WeakMap();
  function rangeOf(values) {
    if (!values) return [0, 0];
    if (!ranges.has(values)) {
      let [low, high] = [0, -Infinity];
      for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
      ranges.set(values, [low, high]);
    }
    return ranges.get(values);
  }

  // ---- a case

  async function casePage(data, where, entry) {
    const at = data.places.get(where.case);
    if (at === undefined) return h("p", { class: "problem" }, `There is no case ${where.case} in this task.`);
    const order = ordered(data, where);
    const row = order.indexOf(at);
    const shown = Math.max(0, modelAt(data, where.model));
    const versus = modelAt(data, where.versus);
    const models = versus >= 0 && versus !== shown ? [shown, versus] : [shown];
    const to = (step) => (row < 0 ? order[0] : order[row + step]);
    const pager = (label, step, key) => {
      const next = to(step);
      return h("button", { type: "button", disabled: next === undefined, "aria-label": label, title: `${label} (${key})`, onclick: () => go({ case: data.cases[next] }) }, step < 0 ? "←" : "→");
    };
    const names = data.models.map((one) => [one.name, one.name]);
    const header = h("div", { class: "title" },
      pager("Case before", -1, "k"), pager("Next case", 1, "j"),
      h("h1", null, where.case),
      h("span", { class: "soft small" }, row < 0 ? "left out by the filters" : `${(row + 1).toLocaleString("en")} of ${order.length.toLocaleString("en")}`),
      h("span", { class: "space" }),
      h("div", { class: "tools" },
        choice("Model", names, data.models[shown].name, (value) => go({ model: value, versus: value === where.versus ? "" : where.versus })),
        data.models.length > 1 ? choice("Compare with", [["", "none"], ...names.filter(([name]) => name !== data.models[shown].name)], models.length > 1 ? where.versus : "", (value) => go({ versus: value, model: data.models[shown].name })) : null));
    const facts = h("p", { class: "facts" },
      data.patients.length ? h("span", null, "patient ", h("b", null, data.patients[at])) : null,
      data.attributes.filter((one) => one.values[one.codes[at]] !== "").map((one) => h("span", null, one.name + " ", h("b", null, one.values[one.codes[at]]))));
    const piece = Math.floor(at / data.piece);
    const [details, scene] = await Promise.all([
      load(`details/${entry.number}/${piece}`),
      data.drawn.has(at) ? load(`cases/${entry.number}/${at}`).catch(() => ({ problems: ["The pictures of this case were not drawn; make the report again to go on where it stopped."], pictures: [], panels: [] })) : null,
    ]);
    const detail = details[at % data.piece];
    const body = h("div", { class: "case" });
    let mounted = { close() {}, toggle() {} };
    if (scene && (scene.pictures.length || scene.panels.length || scene.problems.length)) {
      const card = h("section", { class: "card viewer", "aria-label": "Images" });
      for (const problem of scene.problems) card.append(h("p", { class: "problem" }, problem));
      mounted = viewer.mount(card, scene, { models: models.map((one) => ({ at: one, name: data.models[one].name })), folder: `cases/${entry.number}/${at}/`, niivue: book.niivue });
      body.append(card);
      // Two models need the width where the images differ between them.
      const differing = scene.masks || scene.marks || (scene.panels || []).some((one) => one.model >= 0);
      if (models.length < 2 || !differing) body.classList.add("beside");
    } else if (!scene && entry.drawable) {
      body.append(h("p", { class: "soft small" }, "No pictures were asked for of this case; name it, or cases=all, to have them drawn."));
    }
    const texts = detail.texts ? textCards(data, detail.texts, models) : [];
    const stored = scene && scene.stored ? [storedCard(data, scene.stored, models)] : [];
    const findings = scene && scene.findings ? [findingsCard(data, scene.findings, detail.scores, models)] : [];
    const steps = models.map((model) => (((detail.texts || {}).answers || [])[model] || {}).session);
    const session = sessions.card(models.map((model) => data.models[model].name), steps, scene && scene.sessions && models.map((model) => scene.sessions[model]), `cases/${entry.number}/${at}/`);
    body.append(h("div", { class: "side" }, texts, session, findings, scoreCard(data, detail.scores, models), stored));
    const root = h("div", null, entry.warnings.map((text) => h("p", { class: "note" }, text)), header, facts, body);
    const step = (by) => () => { const next = to(by); if (next !== undefined) go({ case: data.cases[next] }); };
    const turned = () => go({ model: data.models[(shown + 1) % data.models.length].name, versus: "" });
    const compare = () => {
      if (data.models.length < 2) return;
      go(models.length > 1 ? { versus: "" } : { model: data.models[shown].name, versus: data.models[(shown + 1) % data.models.length].name });
    };
    return { root, close: () => mounted.close(), keys: { j: step(1), k: step(-1), m: turned, d: compare, o: () => mounted.toggle(), Escape: () => go({ case: "", versus: "" }) } };
  }

  function scoreCard(data, scores, models) {
    const rows = new Map();
    models.forEach((model, place) => {
      for (const [label, metric, value, status, evidence] of scores[model]) {
        const key = label + "\n" + metric;
        if (!rows.has(key)) rows.set(key, { label, metric, evidence, of: [] });
        rows.get(key).of[place] = { value, status };
      }
    });
    const all = [...rows.values()];
    const counts = all.filter((one) => one.evidence);
    const several = models.length > 1;
    return h("section", { class: "card", "aria-label": "Scores" }, h("h2", null, "Scores"),
      scoreTable(data, all.filter((one) => !one.evidence), models),
      several ? h("p", { class: "soft small" }, `Difference: ${data.models[models[1]].name} less ${data.models[models[0]].name}.`) : null,
      counts.length ? h("details", null, h("summary", { class: "soft small" }, `${counts.length} counts that numbers of the whole run rest on`), scoreTable(data, counts, models)) : null);
  }

  function scoreTable(data, rows, models) {
    const several = models.length > 1;
    const body = h("tbody");
    const shown = rows.slice(0, MOST_ROWS);
    if (rows.length > shown.length) body.append(h("tr", null, h("td", { class: "left soft", colspan: 2 + 2 * models.length + (several ? 1 : 0) }, `The first ${MOST_ROWS} of ${rows.length} rows; all are in the run's scores.parquet.`)));
    for (const { label, metric, of } of shown) {
      const known = data.metrics.find((one) => one.title === metric) || { decimals: 3, higher: null };
      const both = several && of[0] && of[1] && of[0].value !== null && of[1].value !== null;
      const difference = both ? of[1].value - of[0].value : null;
      const better = !both || difference === 0 || known.higher === null ? "" : difference > 0 === known.higher ? "better" : "worse";
      body.append(h("tr", null, h("th", { class: "left", scope: "row" }, label || DASH), h("td", { class: "left soft" }, metric),
        models.map((_, place) => h("td", null, number(of[place] && of[place].value, known.decimals))),
        several ? h("td", { class: better }, both ? (difference > 0 ? "+" : "") + difference.toFixed(known.decimals) : "–") : null,
        models.map((_, place) => h("td", null, badge(of[place] && of[place].status)))));
    }
    return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Scores" }, h("table", { class: "scores" },
      h("thead", null, h("tr", null, h("th", { class: "left", scope: "col" }, "Label"), h("th", { class: "left", scope: "col" }, "Metric"),
        models.map((model) => h("th", { scope: "col" }, data.models[model].name)), several ? h("th", { scope: "col" }, "Difference") : null,
        h("th", { scope: "col", colspan: models.length }, "Status"))), body));
  }

  const said = (text) => h("div", { class: "said" + (text ? "" : " empty") }, text || "nothing");

  function textCards(data, texts, models) {
    const cards = [];
    const asked = h("section", { class: "card", "aria-label": "Prompt" }, h("h2", null, "What was asked"));
    if (texts.problem) asked.append(h("p", { class: "problem" }, texts.problem));
    for (const turn of texts.prompt || []) {
      const parts = turn.parts.map((part) => (typeof part === "number" ? h("span", { class: "picture-mark" }, `image ${part + 1}`) : part));
      asked.append(h("div", { class: "turn" }, h("h3", null, turn.role), h("div", { class: "said" }, parts)));
    }
    const answers = models.map((model) => texts.answers[model] || {});
    if ((texts.options || []).length) {
      asked.append(h("ul", { class: "options", "aria-label": "Options" }, texts.options.map(([letter, text]) => h("li", { class: letter === texts.reference ? "right" : "" },
        h("b", null, letter), h("span", null, text), h("span", { class: "space" }),
        letter === texts.reference ? h("span", { class: "badge good" }, "right") : null,
        models.map((model, place) => (answers[place].extracted === letter ? h("span", { class: "badge" }, data.models[model].name) : null))))));
    }
    if (asked.children.length > 1) cards.push(asked);
    const outputs = answers.map((answer) => (answer.outputs || []).at(-1) || "");
    const isText = texts.reference !== undefined && !(texts.options || []).length;
    if (isText || answers.some((one) => (one.outputs || []).length || one.failure || one.preferences || one.problem)) {
      const card = h("section", { class: "card", "aria-label": "Answers" }, h("h2", null, "What is right, and what was answered"));
      const columns = h("div", { class: "answers" });
      if (texts.reference !== undefined) columns.append(h("div", null, h("h3", null, "Reference"), said(texts.reference)));
      models.forEach((model, place) => columns.append(answerOf(data.models[model].name, answers[place], texts)));
      card.append(columns);
      const pair = models.length > 1
        ? [`From ${data.models[models[0]].name} to ${data.models[models[1]].name}`, outputs[0], outputs[1]]
        : [`From the reference to ${data.models[models[0]].name}`, isText ? texts.reference : "", outputs[0]];
      if (pair[1] && pair[2] && pair[1] !== pair[2]) card.append(h("h3", null, pair[0] + ", word by word"), h("div", { class: "said", "data-diff": true }, wordDiff(pair[1], pair[2])));
      cards.push(card);
    }
    return cards;
  }

  function answerOf(name, answer, texts) {
    const column = h("div", null, h("h3", null, name));
    if (answer.failure) column.append(h("p", { class: "problem" }, answer.failure));
    for (const [place, text] of (answer.outputs || []).entries()) {
      if (answer.outputs.length > 1) column.append(h("h3", null, `reply ${place + 1}`));
      column.append(said(text));
    }
    if (answer.preferences) column.append(h("p", { class: "small" }, answer.preferences.map(([letter, value]) => `${letter} ${value === null ? "–" : value.toPrecision(3)}`).join("   ")));
    if ("extracted" in answer) {
      const right = answer.extracted !== null && answer.extracted === texts.reference;
      column.append(h("p", null, "Taken for the answer: ", answer.extracted === null ? h("i", { class: "soft" }, "none") : h("b", { class: right ? "good" : "" }, answer.extracted), " ", answer.rule ? h("span", { class: "soft small" }, `(${answer.rule})`) : null));
    }
    if (answer.problem) column.append(h("p", { class: "problem" }, answer.problem));
    for (const text of answer.shown || []) column.append(h("p", { class: "small" }, h("span", { class: "soft" }, "shown: "), text));
    for (const [question, verdict] of answer.judged || []) column.append(h("p", { class: "small" }, h("span", { class: "soft" }, `judge, ${question}: `), verdict));
    if (answer.messages) column.append(h("details", null, h("summary", null, "The whole conversation"), answer.messages.map((one) => h("div", { class: "turn" }, h("h3", null, one.role || ""), said(one.text || "")))));
    return column;
  }

  // What is true of each class, and the probability that each model gave it, where its scores hold one.
  function findingsCard(data, findings, scores, models) {
    const given = models.map((model) => new Map(scores[model].filter(([, metric]) => metric === "Probability").map(([label, , value]) => [label, value])));
    const shown = given.some((one) => one.size) ? models : [];
    const truth = (value) => (value === null ? "unknown" : value === 1 ? "present" : value === 0 ? "absent" : number(value, 3));
    return h("section", { class: "card", "aria-label": "Classes" }, h("h2", null, "Classes"), h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Classes" }, h("table", { class: "scores" },
      h("thead", null, h("tr", null, h("th", { class: "left", scope: "col" }, "Class"), h("th", { class: "left", scope: "col" }, "Truth"),
        shown.map((model) => h("th", { scope: "col" }, data.models[model].name)))),
      h("tbody", null, findings.map(([name, value]) => h("tr", null, h("th", { class: "left", scope: "row" }, name),
        h("td", { class: "left" + (value === 1 ? "" : " soft") }, truth(value)),
        shown.map((_, place) => h("td", null, number(given[place].get(name), 3)))))))));
  }

  function storedCard(data, stored, models) {
    return h("section", { class: "card", "aria-label": "Predictions" }, h("h2", null, "As it was stored"), models.map((model) => h("div", null, h("h3", null, data.models[model].name), said(stored[model] || ""))));
  }

  // The longest common words stay; what only the first has is struck out, what only the second has is marked.
  function wordDiff(first, second) {
    const a = first.split(/(\s+)/), b = second.split(/(\s+)/);
    if (a.length * b.length > 9e6) return "The texts are too long to be compared here.";
    const width = b.length + 1;
    const long = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        long[i * width + j] = a[i] === b[j] ? long[(i + 1) * width + j + 1] + 1 : Math.max(long[(i + 1) * width + j], long[i * width + j + 1]);
      }
    }
    const parts = [];
    const add = (tag, text) => { const last = parts.at(-1); if (last && last[0] === tag) last[1] += text; else parts.push([tag, text]); };
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) { add("", a[i]); i++; j++; }
      else if (j >= b.length || (i < a.length && long[(i + 1) * width + j] >= long[i * width + j + 1])) add("del", a[i++]);
      else add("ins", b[j++]);
    }
    return parts.map(([tag, text]) => (tag ? h(tag, null, text) : text));
  }

  // ---- from the address to a page

  let drawing = 0;

  function render() {
    const mine = ++drawing;
    const where = location.hash;
    draw(mine).catch((error) => {
      if (mine === drawing) swap({ kind: "problem", root: h("p", { class: "problem" }, `${error.message}; make the report again.`), close() {}, keys: {} });
    }).finally(() => { if (mine === drawing) document.body.dataset.drawn = where; });
  }

  async function draw(mine) {
    const where = place();
    const entry = book.tasks.find((one) => one.task === where.task);
    const crumbs = [];
    if (entry) crumbs.push(where.case ? h("a", { href: link({ ...where, case: "", versus: "" }) }, entry.title) : h("span", null, entry.title));
    if (entry && where.case) crumbs.push(h("span", { "aria-current": "page" }, where.case));
    byId("crumbs").replaceChildren(...crumbs);
    document.title = [where.case, entry && entry.title, book.title].filter(Boolean).join(" – ");
    if (!entry) { swap({ kind: "overview", root: null, close() {}, keys: {} }); return; }
    const data = prepared(await load(`data/${entry.number}`));
    if (mine !== drawing) return;
    if (!where.case) {
      if (page.kind !== "list" || page.task !== data.task) {
        const before = page.kind === "case" ? page.id : "";
        swap(listPage(data, where));
        page.update(where);
        if (before) page.focusCase(before);
      } else page.update(where);
      return;
    }
    const made = await casePage(data, where, entry);
    if (mine !== drawing) { if (made.close) made.close(); return; }
    const scroll = page.kind === "case" && page.id === where.case ? window.scrollY : 0;
    swap(made.root ? { kind: "case", id: where.case, ...made } : { kind: "case", id: "", root: made, close() {}, keys: {} });
    window.scrollTo(0, scroll);
    forgetScenes();
  }

  function swap(next) {
    page.close();
    page = next;
    byId("overview").hidden = Boolean(next.root);
    byId("page").hidden = !next.root;
    byId("page").replaceChildren(...(next.root ? [next.root] : []));
  }

  // ---- keys

  function pressed(event) {
    const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing) { if (event.key === "Escape") event.target.blur(); return; }
    if (byId("keys").open) return;
    const general = { "/": () => { const field = byId("search"); if (field) field.focus(); else if (place().task) { go({ case: "", versus: "" }); requestAnimationFrame(() => setTimeout(() => byId("search") && byId("search").focus())); } }, "?": () => byId("keys").showModal(), t: flip };
    const named = { ArrowDown: "j", ArrowUp: "k" };
    if (event.key in named && event.target.closest("input, canvas")) return;
    const key = named[event.key] || event.key;
    if (key === "Enter" && event.target.closest("a, button")) return;
    const action = general[key] || (page.keys && page.keys[key]);
    if (action) { event.preventDefault(); action(); }
  }

  function start() {
    book = report.kept.get("data/report");
    byId("help").addEventListener("click", () => byId("keys").showModal());
    document.addEventListener("keydown", pressed);
    window.addEventListener("hashchange", render);
    render();
  }

  report.begin("data/report", start);
})();
