"use strict";
// The pages of a leaderboard. What filters leave is ranked anew, on the resamples that the scores were ranked on.
(() => {
  const { h, byId, load, shortened, DASH } = report;
  const CALLED = { ct: "CT", mri: "MRI", xray: "X-ray", pet: "PET", oct: "OCT" };
  const called = (name) => CALLED[name] || name;
  const TAIL = 0.025; // on either side of an interval of ranks and places
  const SMALLEST = 1e-9; // differences of mean ranks and wins below it are of rounding
  let board = null;

  // ---- filters stand in the address, so that a link leads back to what was seen

  const KEYS = ["family", "modality", "task", "model", "metric", "without", "cells"];

  function place() {
    const given = new URLSearchParams(location.hash.slice(1));
    return Object.fromEntries(KEYS.map((key) => [key, given.get(key) || ""]));
  }

  function go(changes) {
    const next = new URLSearchParams();
    for (const [key, value] of Object.entries({ ...place(), ...changes })) if (value) next.set(key, value);
    history.replaceState(null, "", "#" + next.toString());
    render();
  }

  const has = (text, wanted) => wanted.toLowerCase().split(",").map((one) => one.trim()).filter(Boolean).some((one) => text.toLowerCase().includes(one));
  const left = (where) => new Set(where.without ? where.without.split("\n") : []);
  const tasksOf = (where) => board.tasks.filter((one) => (!where.family || one.family === where.family)
    && (!where.modality || one.modalities.includes(where.modality))
    && (!where.task || has(`${one.title} ${one.task}`, where.task))
    && (!where.metric || rankedBy(one, where)));
  const rankedBy = (task, where) => task.metrics.find((one) => one.ranked && (where.metric ? one.title === where.metric : one.metric === task.ranked_by));

  // ---- ranks

  async function ranksOf(number) {
    const found = await load(`data/ranks-${number}`);
    for (const one of found) {
      if (one.drawn !== undefined) continue;
      one.drawn = null;
      if (one.packed) {
        const bytes = Uint8Array.from(atob(one.packed), (character) => character.charCodeAt(0));
        const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
        one.drawn = new Uint16Array(await new Response(stream).arrayBuffer());
      }
    }
    return found;
  }

  // Ranks of some of the models, ties with their mean; `given` are whole numbers in the order of goodness.
  function among(given, kept, counts, out) {
    counts.fill(0);
    for (const at of kept) counts[given(at)]++;
    let before = 0;
    for (let rank = 0; rank < counts.length; rank++) {
      const times = counts[rank];
      if (times) { counts[rank] = before + (times + 1) / 2; before += times; }
    }
    kept.forEach((at, place) => { out[place] = counts[given(at)]; });
  }

  // Columns of ranks of the models with these numbers: of each the scores' own, and a function for each resample.
  function narrowed(column, models) {
    const kept = column.models.map((model, at) => (models.has(model) ? at : -1)).filter((at) => at >= 0);
    const size = column.models.length;
    const counts = new Float64Array(Math.max(size, ...column.ranks) + 1);
    const out = new Float64Array(kept.length);
    return {
      models: kept.map((at) => column.models[at]),
      resamples: column.drawn ? column.drawn.length / size : 0,
      point() { among((at) => column.ranks[at], kept, counts, out); return Float64Array.from(out); },
      at(resample) { among((at) => column.drawn[resample * size + at], kept, counts, out); return out; },
    };
  }

  const rounded = (value) => Math.round(value / SMALLEST) * SMALLEST;

  function placesOf(worth) { // smaller is better; equal ones share the smaller place
    const sorted = Float64Array.from(worth, rounded).sort();
    const first = new Map();
    sorted.forEach((value, at) => { if (!first.has(value)) first.set(value, at + 1); });
    return Array.from(worth, (value) => first.get(rounded(value)));
  }

  const stepped = (sorted, share) => sorted[Math.max(0, Math.ceil(share * sorted.length - 1e-9) - 1)];
  function between(sorted, share) {
    const at = share * (sorted.length - 1), low = Math.floor(at);
    return sorted[low] + (at - low) * (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]);
  }

  // Columns that share models, or each do with others: only these can be compared.
  function joined(columns) {
    let groups = [];
    for (const column of columns) {
      const met = groups.filter((group) => group.some((one) => one.models.some((model) => column.models.includes(model))));
      groups = [...groups.filter((group) => !met.includes(group)), [...met.flat(), column]];
    }
    return groups.sort((a, b) => b.length - a.length);
  }

  // The models over such columns, as `find_standings` of the program orders them.
  function standings(used) {
    const models = [...new Set(used.flatMap((one) => one.models))].sort((a, b) => a - b);
    const index = new Map(models.map((model, at) => [model, at]));
    const full = used.filter((one) => one.models.length === models.length);
    const byMean = full.length === used.length;
    const size = models.length;
    const met = new Float64Array(size), columnsOf = new Float64Array(size), firsts = new Float64Array(size);
    for (const one of used) for (const model of one.models) { met[index.get(model)] += one.models.length - 1; columnsOf[index.get(model)]++; }
    function summed(ranksOf) {
      const means = new Float64Array(size), wins = new Float64Array(size);
      for (const one of used) {
        const ranks = ranksOf(one);
        one.models.forEach((model, at) => {
          const to = index.get(model);
          wins[to] += (one.models.length - ranks[at]) / met[to];
          if (one.models.length === size) means[to] += ranks[at] / full.length;
        });
      }
      return { means, wins, places: placesOf(byMean ? means : wins.map((one) => -one)) };
    }
    const point = summed((one) => one.point());
    for (const one of used) {
      const ranks = one.point();
      const best = Math.min(...ranks);
      one.models.forEach((model, at) => { if (ranks[at] === best) firsts[index.get(model)]++; });
    }
    const resamples = Math.min(...used.map((one) => one.resamples));
    const places = models.map(() => new Float64Array(resamples)), means = models.map(() => new Float64Array(resamples));
    for (let resample = 0; resample < resamples; resample++) {
      const drawn = summed((one) => one.at(resample));
      for (let at = 0; at < size; at++) { places[at][resample] = drawn.places[at]; means[at][resample] = drawn.means[at]; }
    }
    const rows = models.map((model, at) => {
      const shares = new Map();
      for (const found of places[at]) shares.set(found, (shares.get(found) || 0) + 1 / resamples);
      const of = places[at].sort(), mean = means[at].sort();
      return {
        model: board.models[model].model, place: point.places[at], wins: point.wins[at], firsts: firsts[at], columns: columnsOf[at], shares,
        mean: full.length ? point.means[at] : null,
        placeBounds: resamples ? [stepped(of, TAIL), stepped(of, 1 - TAIL)] : null,
        meanBounds: resamples && full.length ? [between(mean, TAIL), between(mean, 1 - TAIL)] : null,
      };
    });
    rows.sort((a, b) => a.place - b.place || (a.model < b.model ? -1 : 1));
    return { rows, byMean, full: full.length, used: used.map((one) => one.task), lacking: used.filter((one) => !one.resamples).map((one) => one.task) };
  }

  // ---- what is drawn

  const bounds = (low, high) => h("span", { class: "interval" }, `[${low}, ${high}]`);
  const pieces = (...parts) => parts.flatMap((part, at) => (at ? [" ", part] : [part]));

  // How often each place is taken: a cell for each, darker where it is more often.
  function strip(shares, size) {
    if (!shares.size) return h("span", { class: "quiet" }, DASH);
    const told = [...shares].sort((a, b) => a[0] - b[0]).filter(([, share]) => share >= 0.005).map(([at, share]) => `${at} in ${(100 * share).toFixed(0)} %`).join(", ");
    const cells = Array.from({ length: size }, (_, at) => h("i", { style: `opacity:${(shares.get(at + 1) || 0).toFixed(3)}` }));
    return h("span", { class: "strip", role: "img", "aria-label": `of resamples: ${told}`, title: `Of resamples: ${told}` }, cells);
  }

  // A value with its interval on the scale of its column.
  function whisker(value, low, high, [from, to]) {
    if (value === null) return h("span", { class: "quiet" }, DASH);
    const at = (one) => (to > from ? (100 * (one - from)) / (to - from) : 50);
    return h("span", { class: "whisker", "aria-hidden": "true" },
      low === null ? null : h("i", { style: `left:${at(low).toFixed(1)}%;width:${(at(high) - at(low)).toFixed(1)}%` }),
      h("b", { style: `left:${at(value).toFixed(1)}%` }));
  }

  const valueOf = (() => {
    let index = null;
    return (task, model, metric) => {
      if (!index) index = new Map(board.values.map((one) => [`${one.task}\n${one.model}\n${one.metric}`, one]));
      return index.get(`${task}\n${model}\n${metric}`);
    };
  })();

  const STYLES = { best: "strong", second: "u", "": "span" };

  function printed(found, mark) {
    if (!found) return h("span", { class: "quiet" }, DASH);
    const text = found.value === null ? h("span", { class: "quiet" }, found.printed) : h(STYLES[mark], null, found.printed);
    return pieces(text, ...(found.printed_interval ? [h("span", { class: "interval" }, found.printed_interval)] : []));
  }

  const sorts = new Map();

  // A table that sorts by any column with a `key`. Rows without a value are last whichever way it is turned.
  function table(name, label, columns, rows, kindOf = () => "") {
    const chosen = sorts.get(name) || { at: -1, down: false };
    const by = columns[chosen.at];
    const known = (row) => { const value = by.key(row); return value !== null && value !== undefined && value !== ""; };
    const compare = (a, b) => { const [one, other] = [by.key(a), by.key(b)]; return typeof one === "string" ? one.localeCompare(other, undefined, { numeric: true }) : one - other; };
    const last = (row) => (kindOf(row) ? 1 : 0);
    const turn = chosen.down ? -1 : 1;
    const ordered = !by ? rows : [...rows].sort((a, b) => last(a) - last(b) || (known(a) && known(b) ? turn * compare(a, b) : known(b) - known(a)));
    const press = (at) => {
      const down = chosen.at === at ? !chosen.down : Boolean(columns[at].falls);
      sorts.set(name, { at, down });
      render().then(() => { const button = document.querySelector(`[data-table="${name}"] [data-column="${at}"]`); if (button) button.focus(); });
    };
    const head = (column, at) => h("th", {
      scope: "col", class: [column.text && "left", column.names && "names"].filter(Boolean).join(" "), title: column.whole || null,
      "aria-sort": at === chosen.at ? (chosen.down ? "descending" : "ascending") : null,
    }, column.key ? h("button", { type: "button", "data-column": at, "aria-label": column.whole || null, onclick: () => press(at) }, column.title, h("span", { class: "turn", "aria-hidden": "true" }, at === chosen.at ? (chosen.down ? "↓" : "↑") : "")) : column.title);
    let before = "";
    const body = ordered.map((row) => {
      const kind = kindOf(row);
      const opens = kind !== before && row !== ordered[0];
      before = kind;
      return h("tr", { class: opens ? "opens" : "" }, columns.map((column) => {
        const content = [column.cell(row)].flat();
        return column.names ? h("th", { scope: "row" }, content) : h("td", { class: column.text ? "left" : "" }, content);
      }));
    });
    const region = h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label, "data-table": name },
      h("table", { "aria-label": label }, h("thead", null, h("tr", null, columns.map(head))), h("tbody", null, body)));
    const earlier = document.querySelector(`[data-table="${name}"]`);
    if (earlier) requestAnimationFrame(() => { region.scrollLeft = earlier.scrollLeft; });
    return region;
  }

  const card = (label, ...content) => h("section", { class: "card", "aria-label": label }, h("h2", null, label), content);

  // ---- the overview

  function field(label, control) { return h("label", null, label, control); }

  function choice(key, label, options, where) {
    const select = h("select", { "aria-label": label, onchange: () => go({ [key]: select.value }) }, options.map(([value, text]) => h("option", { value }, text)));
    select.value = where[key];
    return field(label, select);
  }

  function search(key, label, hint, where) {
    const input = h("input", { type: "search", placeholder: hint, value: where[key], "aria-label": label, oninput: () => go({ [key]: input.value }) });
    return field(label, input);
  }

  function filters() {
    const where = place();
    const sorted = (values) => [...new Set(values)].filter(Boolean).sort((a, b) => called(a).localeCompare(called(b)));
    const any = (values) => [["", "Any"], ...sorted(values).map((one) => [one, called(one)])];
    const titles = [...new Set(board.tasks.flatMap((one) => one.metrics.filter((metric) => metric.ranked).map((metric) => metric.title)))];
    const form = h("form", { class: "filters", role: "search", "aria-label": "Filter", onsubmit: (event) => event.preventDefault() },
      search("model", "Models", "such as nnU-Net, UNETR", where), search("task", "Tasks", "such as liver, chest", where),
      choice("family", "Family", any(board.tasks.map((one) => one.family)), where),
      choice("modality", "Modality", any(board.tasks.flatMap((one) => one.modalities)), where),
      choice("metric", "Ranked by", [["", "First metric of each task"], ...titles.map((one) => [one, one])], where),
      choice("cells", "Cells show", [["", "Values"], ["ranks", "Ranks"]], where),
      h("button", { type: "button", onclick: () => { history.replaceState(null, "", location.pathname + location.search); byId("filters").replaceChildren(filters()); render(); } }, "Clear"),
      h("span", { class: "count", id: "count", role: "status" }));
    return form;
  }

  function standingsCard(found, at, groups) {
    const notes = [];
    const { used, lacking } = found;
    const few = used.map((one) => one.title).join(", ");
    const label = groups > 1 ? `Standings ${at + 1} of ${groups}` : "Standings";
    if (groups > 1) notes.push(h("span", { class: "soft" }, `These models share no task with those of the other standings, so that nothing can be said between them. Here: ${few}.`));
    if (!found.byMean) notes.push(`Not every model has every task, so places are by wins.${found.full ? ` Mean ranks are over the ${found.full} of ${used.length} tasks that every model has.` : " No task has every model, so there are no mean ranks."}`);
    if (lacking.length) {
      notes.push(h("span", null, `Places have no interval: there are no resamples of ${lacking.map((one) => one.title).join(", ")}, of fewer than 5 patients or judged as a set. `,
        h("button", { type: "button", onclick: () => go({ without: [...left(place()), ...lacking.map((one) => one.task)].join("\n") }) }, lacking.length > 1 ? "Leave them out" : "Leave it out")));
    }
    const size = found.rows.length;
    const columns = [
      { title: "Place", key: (row) => row.place, cell: (row) => pieces(h(row.place === 1 ? "strong" : "span", null, String(row.place)), ...(row.placeBounds ? [bounds(...row.placeBounds)] : [])) },
      { title: "Model", names: true, text: true, key: (row) => row.model, cell: (row) => row.model },
      { title: "Places on resamples", text: true, cell: (row) => strip(row.shares, size) },
      { title: "Mean rank", key: (row) => row.mean, cell: (row) => (row.mean === null ? h("span", { class: "quiet" }, DASH) : pieces(row.mean.toFixed(2), ...(row.meanBounds ? [bounds(...row.meanBounds.map((one) => one.toFixed(2)))] : []))) },
      { title: "Wins", falls: true, key: (row) => row.wins, cell: (row) => `${(100 * row.wins).toFixed(0)} %` },
      { title: "First in", falls: true, key: (row) => row.firsts, cell: (row) => `${row.firsts} of ${row.columns}` },
      { title: "Tasks", falls: true, key: (row) => row.columns, cell: (row) => `${row.columns} of ${used.length}` },
    ];
    return card(label, notes.map((note) => h("p", { class: note.className === "soft" ? "" : "note" }, note)), table(`standings-${at}`, label, columns, found.rows));
  }

  function cellsCard(tasks, rows, ranks, where) {
    if (!tasks.length || !rows.length) return null;
    const heads = shortened(tasks.map((one) => one.title), 40);
    const shown = where.cells === "ranks";
    const columns = [
      { title: "Model", names: true, text: true, key: (row) => row.model, cell: (row) => row.model },
      ...tasks.map((task, at) => {
        const metric = rankedBy(task, where) || task.metrics[0];
        const rank = (row) => ranks.get(task.task).get(row.model);
        const value = (row) => valueOf(task.task, row.model, metric.metric);
        const arrow = metric.higher_is_better === null ? "" : metric.higher_is_better ? " ↑" : " ↓";
        return {
          title: [h("span", { class: "task" }, heads[at]), h("span", { class: "metric" }, metric.title + arrow)], whole: `${task.title}: ${metric.title}`, falls: !shown && metric.higher_is_better,
          key: (row) => (shown ? rank(row) : value(row) && value(row).value),
          cell: (row) => (shown ? (rank(row) === undefined ? h("span", { class: "quiet" }, DASH) : h(rank(row) === 1 ? "strong" : "span", null, String(rank(row)))) : printed(value(row), rank(row) === 1 ? "best" : "")),
        };
      }),
    ];
    return card("Task by task", table("cells", "Task by task", columns, rows, (row) => (row.baseline ? "baseline" : "")));
  }

  function tasksCard(tasks, where, ranks) {
    const without = left(where);
    const toggle = (task, kept) => { const next = left(place()); if (kept) next.delete(task); else next.add(task); go({ without: [...next].join("\n") }); };
    const of = (task) => rankedBy(task, where);
    const best = (task) => [...(ranks.get(task.task) || new Map())].filter(([, rank]) => rank === 1).map(([model]) => model).join(", ");
    const columns = [
      { title: "Counted", text: true, cell: (task) => h("input", { type: "checkbox", checked: !without.has(task.task), "aria-label": `Count ${task.title}`, onchange: (event) => toggle(task.task, event.target.checked) }) },
      { title: "Task", names: true, text: true, key: (task) => task.title, cell: (task) => h("a", { href: task.page }, task.title) },
      { title: "Family", text: true, key: (task) => task.family, cell: (task) => task.family || DASH },
      { title: "Modality", text: true, key: (task) => task.modalities.map(called).join(", "), cell: (task) => task.modalities.map(called).join(", ") || DASH },
      { title: "Cases", falls: true, key: (task) => task.cases, cell: (task) => task.cases.toLocaleString("en") },
      { title: "Models", falls: true, key: (task) => (ranks.get(task.task) || new Map()).size, cell: (task) => (ranks.get(task.task) ? ranks.get(task.task).size : DASH) },
      { title: "Ranked by", text: true, key: (task) => (of(task) ? of(task).title : ""), cell: (task) => (of(task) ? of(task).title : DASH) },
      { title: "First", text: true, key: best, cell: (task) => best(task) || DASH },
    ];
    return card("Tasks", tasks.length ? table("tasks", "Tasks", columns, tasks) : h("p", { class: "soft" }, "These filters leave no task."));
  }

  async function overview() {
    const where = place();
    const tasks = tasksOf(where);
    const counted = tasks.filter((one) => !left(where).has(one.task));
    const models = new Set(board.models.map((one, at) => (!where.model || has(one.model, where.model) ? at : -1)).filter((at) => at >= 0));
    const columns = [], ranks = new Map();
    const loaded = await Promise.all(counted.map((one) => ranksOf(board.tasks.indexOf(one))));
    counted.forEach((task, at) => {
      const metric = rankedBy(task, where);
      const found = metric && loaded[at].find((one) => one.metric === metric.metric);
      const column = found && narrowed(found, models);
      const known = new Map();
      if (column && column.models.length > 1) {
        columns.push({ ...column, task });
        const point = column.point();
        column.models.forEach((model, place) => known.set(board.models[model].model, placesOf(point)[place]));
      }
      ranks.set(task.task, known);
    });
    const found = joined(columns).map(standings);
    const placed = new Map(found.flatMap((one) => one.rows).map((row, at) => [row.model, at]));
    const rows = board.models.filter((one, at) => models.has(at) && counted.some((task) => task.metrics.some((metric) => valueOf(task.task, one.model, metric.metric))))
      .sort((a, b) => a.baseline - b.baseline || (placed.get(a.model) ?? 1e9) - (placed.get(b.model) ?? 1e9));
    byId("count").textContent = `${rows.length} of ${board.models.length} models, ${counted.length} of ${board.tasks.length} tasks`;
    const none = card("Standings", h("p", { class: "soft" }, "There is no task here that two models can be ranked on."));
    return [...(found.length ? found.map((one, at) => standingsCard(one, at, found.length)) : [none]), cellsCard(counted, rows, ranks, where), tasksCard(tasks, where, ranks)];
  }

  // ---- a task

  async function taskPage(task) {
    const ranked = task.metrics.filter((one) => one.ranked);
    const where = place();
    const metric = ranked.find((one) => one.metric === where.metric) || ranked.find((one) => one.metric === task.ranked_by) || ranked[0] || task.metrics[0];
    const found = (await ranksOf(board.tasks.indexOf(task))).find((one) => one.metric === metric.metric);
    const of = new Map(board.ranks.filter((one) => one.task === task.task && one.metric === metric.metric).map((one) => [one.model, one]));
    const names = [...new Set(board.values.filter((one) => one.task === task.task).map((one) => one.model))];
    const baseline = new Map(board.models.map((one) => [one.model, one.baseline]));
    const rows = names.map((model) => ({ model, baseline: baseline.get(model), rank: of.get(model), of: valueOf(task.task, model, metric.metric) }))
      .sort((a, b) => a.baseline - b.baseline || (a.rank ? a.rank.rank : 1e9) - (b.rank ? b.rank.rank : 1e9));
    const ends = rows.flatMap(({ of }) => (of && of.value !== null ? [of.value, of.low ?? of.value, of.high ?? of.value] : []));
    const range = [Math.min(...ends), Math.max(...ends)];
    const arrow = (one) => (one.higher_is_better === null ? "" : one.higher_is_better ? " ↑" : " ↓");
    const size = found ? found.models.length : 0;
    const columns = [
      { title: "Rank", key: (row) => row.rank && row.rank.rank, cell: (row) => (row.rank ? pieces(h(row.rank.rank === 1 ? "strong" : "span", null, String(row.rank.rank)), ...(row.rank.low === null ? [] : [bounds(row.rank.low, row.rank.high)])) : h("span", { class: "quiet" }, DASH)) },
      { title: "Model", names: true, text: true, key: (row) => row.model, cell: (row) => row.model },
      { title: "Ranks on resamples", text: true, cell: (row) => strip(new Map((row.rank ? row.rank.shares : []).map((one) => [one.rank, one.share])), size) },
      { title: `${metric.title}, with interval`, text: true, cell: (row) => (row.of ? whisker(row.of.value, row.of.low, row.of.high, range) : DASH) },
      ...task.metrics.map((one) => ({
        title: one.title + arrow(one), falls: one.higher_is_better,
        key: (row) => { const value = valueOf(task.task, row.model, one.metric); return value && value.value; },
        cell: (row) => { const value = valueOf(task.task, row.model, one.metric); return printed(value, value && value.mark); },
      })),
    ];
    const fewer = metric.ranked && metric.ranked_cases < task.cases ? h("p", { class: "note" }, `Ranked on ${metric.ranked_cases.toLocaleString("en")} of ${task.cases.toLocaleString("en")} cases, those that all ranked models have a value of.`) : null;
    const choose = ranked.length > 1 ? h("div", { class: "filters" }, choice("metric", "Ranked by", ranked.map((one) => [one.metric, one.title]), { metric: metric.metric })) : null;
    return [choose, card("Results", fewer, table("task", "Results", columns, rows, (row) => (row.baseline ? "baseline" : "")))];
  }

  let drawing = 0;

  async function render() {
    const mine = ++drawing;
    const task = board.tasks.find((one) => one.task === document.body.dataset.task);
    try {
      const made = await (task ? taskPage(task) : overview());
      if (mine === drawing) byId("board").replaceChildren(...made.filter(Boolean));
    } catch (error) {
      if (mine === drawing) byId("board").replaceChildren(h("p", { class: "problem" }, `${error.message}; make the leaderboard again.`));
    }
  }

  report.begin("data/leaderboard", () => {
    board = report.kept.get("data/leaderboard");
    for (const one of document.querySelectorAll("[data-modalities]")) one.textContent = one.textContent.split(", ").map(called).join(", ");
    if (!document.body.dataset.task) byId("board").before(h("div", { id: "filters" }, filters()));
    window.addEventListener("hashchange", () => { if (byId("filters")) byId("filters").replaceChildren(filters()); render(); });
    render();
  });
})();
