"use strict";
// Images of a case: pictures, slices and volumes with label maps, boxes and points on them.
const viewer = (() => {
  const { h } = report;
  // Told apart by people who see few colours as well (after Okabe and Ito), then darker ones.
  const COLOURS = [[86, 180, 233], [230, 159, 0], [0, 158, 115], [240, 228, 66], [204, 121, 167], [213, 94, 0], [0, 114, 178], [160, 160, 160], [148, 103, 189], [188, 189, 34], [140, 86, 75], [23, 190, 207]];
  const colourOf = (label) => COLOURS[(label - 1) % COLOURS.length];
  const css = ([r, g, b], alpha = 1) => `rgb(${r} ${g} ${b} / ${alpha})`;
  const ONLY_TRUTH = [0, 114, 178], ONLY_ANSWER = [213, 94, 0], OTHER = [204, 121, 167];

  // What the reader has chosen stays from case to case.
  const look = { truth: true, answer: true, errors: false, differ: false, opacity: 0.4, hidden: new Set(), preset: "", picture: 0, flat: false, truthFill: false, answerFill: true };

  async function bytes(base64) {
    const packed = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  // Numbers of a picture on a grid of (u, v, slice), whatever lies behind it.
  async function numbersOf(data, volume, Kind) {
    const buffer = await bytes(volume ? data.nifti : data.data);
    return new Kind(buffer, volume ? 352 : 0);
  }

  function imageOf(src) {
    return new Promise((resolve, reject) => {
      const image = new Image();
      image.onload = () => resolve(image);
      image.onerror = () => reject(new Error(`${src} is not there`));
      image.src = src;
    });
  }

  // How each plane runs through the numbers; volumes are RAS+, shown with the patient's right on the left.
  function planesOf(picture) {
    const [a, b, c] = picture.shape;
    if (picture.kind !== "volume") {
      return [{ name: "", count: a, width: c, height: b, start: (s) => s * b * c, du: 1, dv: c, ratio: 1, axis: 0, place: (p) => [p[p.length - 1], p[p.length - 2]], slice: (p) => (p.length > 2 ? p[0] : 0) }];
    }
    const [x, y, z] = picture.spacing;
    const ij = a * b;
    const across = (p) => a - 1 - p[0];
    return [
      { name: "axial", count: c, width: a, height: b, start: (s) => a - 1 + a * (b - 1) + ij * s, du: -1, dv: -a, ratio: y / x, unit: x, axis: 2, place: (p) => [across(p), b - 1 - p[1]], slice: (p) => p[2] },
      { name: "coronal", count: b, width: a, height: c, start: (s) => a - 1 + a * s + ij * (c - 1), du: -1, dv: -ij, ratio: z / x, unit: x, axis: 1, place: (p) => [across(p), c - 1 - p[2]], slice: (p) => p[1] },
      { name: "sagittal", count: a, width: b, height: c, start: (s) => s + a * (b - 1) + ij * (c - 1), du: -a, dv: -ij, ratio: z / y, unit: y, axis: 0, place: (p) => [b - 1 - p[1], c - 1 - p[2]], slice: (p) => p[0] },
    ];
  }

  const heat = (t) => [Math.min(255, 765 * t), Math.max(0, Math.min(255, 765 * t - 255)), Math.max(0, Math.min(255, 765 * t - 510))];

  // The grey (or heat) pixels of one slice.
  function greys(picture, numbers, plane, slice, [low, high]) {
    const canvas = document.createElement("canvas");
    canvas.width = plane.width;
    canvas.height = plane.height;
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(plane.width, plane.height);
    const scale = 1 / Math.max(1e-12, high - low);
    const start = plane.start(slice);
    let to = 0;
    for (let v = 0; v < plane.height; v++) {
      let at = start + v * plane.dv;
      for (let u = 0; u < plane.width; u++, at += plane.du, to += 4) {
        const t = Math.max(0, Math.min(1, (numbers[at] * picture.slope + picture.intercept - low) * scale));
        if (picture.colours === "heat") [pixels.data[to], pixels.data[to + 1], pixels.data[to + 2]] = heat(t);
        else pixels.data[to] = pixels.data[to + 1] = pixels.data[to + 2] = 255 * t;
        pixels.data[to + 3] = 255;
      }
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  // Of a slice, a colour for each pixel that `pick` gives one.
  function painted(plane, slice, pick, alpha) {
    const canvas = document.createElement("canvas");
    canvas.width = plane.width;
    canvas.height = plane.height;
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(plane.width, plane.height);
    let to = 0;
    for (let v = 0; v < plane.height; v++) {
      let at = plane.start(slice) + v * plane.dv;
      for (let u = 0; u < plane.width; u++, at += plane.du, to += 4) {
        const colour = pick(at);
        if (!colour) continue;
        [pixels.data[to], pixels.data[to + 1], pixels.data[to + 2]] = colour;
        pixels.data[to + 3] = 255 * alpha;
      }
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  // The edges between pixels of a label and others, by label; dotted for answers, so that truth shows beneath.
  function outlines(context, map, plane, slice, scaleX, scaleY, dotted) {
    const paths = new Map();
    const start = plane.start(slice);
    const label = (u, v) => (u < 0 || v < 0 || u >= plane.width || v >= plane.height ? 0 : map[start + u * plane.du + v * plane.dv]);
    const share = dotted ? 0.55 : 1;
    for (let v = 0; v <= plane.height; v++) {
      for (let u = 0; u <= plane.width; u++) {
        const here = label(u, v);
        for (const [other, upright] of [[label(u - 1, v), true], [label(u, v - 1), false]]) {
          if (here === other) continue;
          for (const one of [here, other]) {
            if (!one || look.hidden.has(one)) continue;
            if (!paths.has(one)) paths.set(one, new Path2D());
            const path = paths.get(one);
            path.moveTo(u * scaleX, v * scaleY);
            path.lineTo((u + (upright ? 0 : share)) * scaleX, (v + (upright ? share : 0)) * scaleY);
          }
        }
      }
    }
    for (const [one, path] of paths) {
      context.lineWidth = dotted ? 2 : 3.4;
      if (!dotted) { context.strokeStyle = "rgb(0 0 0 / .55)"; context.stroke(path); }
      context.lineWidth = dotted ? 2 : 1.8;
      context.strokeStyle = css(colourOf(one));
      context.stroke(path);
    }
  }

  function drawMarks(context, marks, plane, slice, scaleX, scaleY, colour, dashed) {
    context.lineWidth = 2;
    context.strokeStyle = context.fillStyle = colour;
    context.setLineDash(dashed ? [6, 4] : []);
    context.font = "12px system-ui, sans-serif";
    const middle = (value, scale) => (value + 0.5) * scale;
    for (const mark of marks || []) {
      const axes = mark.place.length / (mark.kind === "box" ? 2 : 1);
      const first = mark.place.slice(0, axes), last = mark.kind === "box" ? mark.place.slice(axes) : first;
      const near = axes < 3 || (slice >= plane.slice(first) - 1.5 && slice <= plane.slice(last) + 1.5);
      if (!near) continue;
      const [u1, v1] = plane.place(first), [u2, v2] = plane.place(last);
      const x = Math.min(u1, u2) * scaleX, y = Math.min(v1, v2) * scaleY;
      if (mark.kind === "box") context.strokeRect(x, y, (Math.abs(u2 - u1) + 1) * scaleX, (Math.abs(v2 - v1) + 1) * scaleY);
      else { context.beginPath(); context.arc(middle(u1, scaleX), middle(v1, scaleY), 6, 0, 7); context.stroke(); }
      const said = [mark.name, mark.score === null ? "" : mark.score.toFixed(2)].filter(Boolean).join(" ");
      if (said) context.fillText(said, x + (mark.kind === "box" ? 3 : 12), Math.max(12, y - 4));
    }
    context.setLineDash([]);
  }

  // ---- one card of images

  function mount(card, scene, { models, folder, niivue }) {
    const state = { closed: false, build: 0, redraws: [], close: [], window: null };
    const pictures = scene.pictures || [];
    const panels = (scene.panels || []).filter((one) => one.model === undefined || one.model < 0 || models.some(({ at }) => at === one.model));
    const tools = h("div", { class: "tools", role: "group", "aria-label": "How it is shown" });
    const views = h("div");
    const says = h("p", { class: "says" });
    card.append(tools, views, says);
    if (look.picture >= pictures.length) look.picture = 0;
    const redraw = () => { for (const one of state.redraws) one(); };
    const rebuild = () => { release(); drawTools(); build(); };

    function release() {
      state.build += 1; // what is still being read for what was shown before is then dropped
      for (const one of state.close) one();
      state.close = [];
      state.redraws = [];
    }

    const chosen = () => pictures[look.picture];
    // What the window is of: the picture, or the first of several beside each other.
    const windowed = () => chosen() || panels.find((one) => one.kind === "stack" && one.colours !== "heat");
    const windowFor = (picture) => (picture === chosen() || (state.window && picture.colours !== "heat" && !chosen()) ? windowOf(picture) : picture.window);
    // A degraded picture has the truth and the answers that belong to it; others share those of the case.
    const overlays = () => {
      const picture = chosen();
      if (picture && picture.beside !== undefined) return { masks: picture.masks, marks: picture.marks };
      return picture && picture.overlaid ? { masks: scene.masks, marks: scene.marks } : {};
    };
    const usesNiivue = () => Boolean(niivue && !look.flat && models.length === 1 && chosen() && chosen().kind === "volume" && chosen().beside === undefined && !scene.marks);

    function windowOf(picture) {
      if (state.window) return state.window;
      if (look.preset === "all") return picture.full;
      const preset = (picture.presets || []).find(([name]) => name === look.preset);
      return preset ? preset.slice(1) : picture.window;
    }

    const box = (label, key, id) => h("label", null, h("input", { type: "checkbox", checked: look[key], id, onchange: (event) => { look[key] = event.target.checked; redraw(); } }), label);

    function drawTools() {
      const picture = chosen();
      const made = [];
      if (pictures.length > 1) made.push(select("Image", pictures.map((one, at) => [String(at), one.title]), String(look.picture), (value) => { look.picture = Number(value); state.window = null; rebuild(); }));
      const grey = windowed();
      if (grey && grey.kind !== "raster") {
        const options = [["", (grey.presets || []).length ? grey.presets[0][0] : "automatic"], ...(grey.presets || []).slice(1).map(([name]) => [name, name]), ["all", "whole range"]];
        if (picture) made.push(select("Window", options, look.preset, (value) => { look.preset = value; state.window = null; drawTools(); redraw(); }));
        made.push(...windowSliders(grey));
      }
      const { masks, marks } = overlays();
      if (masks || marks) made.push(box("Truth", "truth", "show-truth"), box("Prediction", "answer", "show-answer"));
      if (masks) {
        if (!usesNiivue()) made.push(box("Errors", "errors", "show-errors"), box("Fill truth", "truthFill"), box("Fill prediction", "answerFill"));
        if (models.length > 1) made.push(box("Where the models differ", "differ", "show-differ"));
        made.push(h("label", null, "Opacity", h("input", { type: "range", min: 0, max: 1, step: 0.05, value: look.opacity, "aria-label": "Opacity", oninput: (event) => { look.opacity = Number(event.target.value); redraw(); } })));
        scene.labels.forEach((name, at) => made.push(h("button", { type: "button", class: "chip", "aria-pressed": String(!look.hidden.has(at + 1)), onclick: (event) => {
          if (look.hidden.has(at + 1)) look.hidden.delete(at + 1); else look.hidden.add(at + 1);
          event.currentTarget.setAttribute("aria-pressed", String(!look.hidden.has(at + 1)));
          redraw();
        } }, h("i", { style: `background:${css(colourOf(at + 1))}` }), name)));
      }
      if (niivue && models.length === 1 && picture && picture.kind === "volume" && !scene.marks) made.push(h("button", { type: "button", onclick: () => { look.flat = !look.flat; rebuild(); } }, look.flat ? "Show in NiiVue" : "Show plain slices"));
      tools.replaceChildren(...made);
    }

    function select(label, options, value, onchange) {
      const element = h("select", { "aria-label": label, onchange: () => onchange(element.value) }, options.map(([key, text]) => h("option", { value: key }, text)));
      element.value = options.some(([key]) => key === value) ? value : options[0][0];
      return h("label", null, label, element);
    }

    function windowSliders(picture) {
      const [low, high] = picture.full;
      const span = Math.max(1e-9, high - low);
      const [from, to] = windowOf(picture);
      const slider = (label, value, min, max, set) => h("input", { type: "range", min, max, step: span / 200, value, "aria-label": label, title: label, style: "width:6.5rem", oninput: (event) => { set(Number(event.target.value)); redraw(); } });
      const current = () => state.window || windowOf(picture);
      return [h("label", null, "Level", slider("Level", (from + to) / 2, low - span / 4, high + span / 4, (middle) => { const [a, b] = current(); state.window = [middle - (b - a) / 2, middle + (b - a) / 2]; })),
        h("label", null, "Width", slider("Width", to - from, span / 200, span * 1.5, (width) => { const [a, b] = current(); const middle = (a + b) / 2; state.window = [middle - width / 2, middle + width / 2]; }))];
    }

    function build() {
      const notes = [];
      const picture = chosen();
      views.className = "views" + (picture && picture.kind === "volume" ? " rowwise" : "");
      views.replaceChildren();
      if (picture) {
        if (picture.steps && picture.steps.length) notes.push(`Shown smaller than it is: every ${picture.steps.join(" × ")} ${picture.kind === "volume" ? "voxels" : "pixels"} are one here. Scores are of the full size.`);
        if (scene.masks && !usesNiivue()) notes.push(`Where they are not filled, truth has solid outlines and predictions dotted ones. Errors: blue where only truth has a label, orange where only the prediction has, pink where they differ.${models.length > 1 ? " White: where the models differ." : ""}`);
        if (picture.kind === "volume" && !niivue) notes.push("The viewer of volumes, NiiVue, is not in the installation that made this report, so volumes are shown as plain slices. Wheels made by `make wheel` hold it; in a clone `make viewer` fetches it.");
        if (usesNiivue()) notes.push("Drawn by NiiVue (BSD 2-Clause); niivue-licences.txt in the report's folder has its licences.");
        if (usesNiivue()) buildNiivue(picture); else buildSlices(picture);
      }
      const together = new Map(); // slices of panels that have as many move together
      for (const panel of panels) {
        const key = panel.shape.join();
        if (!together.has(key)) together.set(key, { slices: null, listeners: [] });
        buildPanel(panel, together.get(key));
      }
      says.replaceChildren(...notes.flatMap((text, at) => (at ? [h("br"), text] : [text])));
    }

    const failed = (error) => { if (!state.closed) views.append(h("p", { class: "problem" }, String(error.message || error))); };

    function buildPanel(panel, shared) {
      const named = models.find(({ at }) => at === panel.model);
      const figure = h("figure", { class: "single" }, h("figcaption", null, h("b", null, [named && named.name, panel.title].filter(Boolean).join(": "))));
      views.append(figure);
      planes(figure, panel, {}, shared).catch(failed);
    }

    function buildSlices(picture) {
      const { masks, marks } = overlays();
      const shared = { slices: null, listeners: [] };
      const shown = masks || marks ? models : models.slice(0, 1);
      if (picture.beside !== undefined) {
        const clean = pictures[picture.beside];
        const figure = h("figure", { class: picture.kind === "volume" ? "" : "single" }, h("figcaption", null, h("b", null, "As published")));
        views.append(figure);
        const over = clean.overlaid ? { masks: scene.masks, marks: scene.marks } : {};
        planes(figure, clean, { ...over, model: shown[0].at, other: -1 }, shared).catch(failed);
      }
      for (const model of shown) {
        const figure = h("figure", { class: picture.kind === "volume" ? "" : "single" });
        if (masks || marks) figure.append(h("figcaption", null, h("b", null, picture.beside === undefined ? model.name : `${model.name}, ${picture.title.split(" ")[0]}`)));
        else if (panels.length || pictures.length > 1) figure.append(h("figcaption", null, h("b", null, picture.title)));
        views.append(figure);
        planes(figure, picture, { masks, marks, model: model.at, other: shown.length > 1 ? shown.find((one) => one !== model).at : -1 }, shared).catch(failed);
      }
    }

    async function planes(figure, picture, over, shared) {
      const build = state.build;
      const volume = picture.kind === "volume";
      const kinds = planesOf(picture);
      const base = picture.kind === "raster" ? await imageOf(folder + picture.file) : await numbersOf(picture, volume, Int16Array);
      const maps = { truth: null, answer: null, other: null };
      if (over.masks) {
        const read = (one) => (one ? numbersOf(one, volume, Uint8Array) : null);
        [maps.truth, maps.answer, maps.other] = await Promise.all([read(over.masks.truth), read(over.masks.models[over.model]), read(over.other >= 0 ? over.masks.models[over.other] : null)]);
      }
      if (state.closed || build !== state.build) return;
      if (!shared.slices) shared.slices = startOf(picture, kinds, maps.truth || maps.answer, over);
      const holder = h("div", { class: volume ? "planes" : "" });
      figure.append(holder);
      for (const plane of kinds) holder.append(planeView(picture, base, plane, maps, over, shared));
    }

    // Slices to begin with: where most is labelled, where the first mark is, or the middle.
    function startOf(picture, kinds, map, over) {
      const marks = over.marks && [...(over.marks.truth || []), ...((over.marks.models || [])[over.model] || [])];
      return kinds.map((plane) => {
        if (marks && marks.length && marks[0].place.length > 2) {
          const mark = marks[0].place, axes = mark.length / (marks[0].kind === "box" ? 2 : 1);
          return Math.round(Math.max(0, Math.min(plane.count - 1, (plane.slice(mark.slice(0, axes)) + plane.slice(mark.slice(-axes))) / 2)));
        }
        let best = Math.floor(plane.count / 2), most = 0;
        if (map && plane.count > 1) {
          for (let slice = 0; slice < plane.count; slice++) {
            let count = 0;
            for (let v = 0; v < plane.height; v += 2) for (let u = 0, at = plane.start(slice) + v * plane.dv; u < plane.width; u += 2, at += 2 * plane.du) if (map[at]) count++;
            if (count > most) [best, most] = [slice, count];
          }
        }
        return best;
      });
    }

    function planeView(picture, base, plane, maps, over, together) {
      const place = planesOf(picture).findIndex((one) => one.name === plane.name);
      const canvas = h("canvas", { role: "img", tabindex: plane.count > 1 ? "0" : null, "aria-label": [picture.title || "Image", plane.name].filter(Boolean).join(", ") });
      const slider = h("input", { type: "range", min: 0, max: plane.count - 1, step: 1, "aria-label": `Slice ${plane.name}` });
      const label = h("span", null);
      const height = plane.height * plane.ratio;
      const zoom = Math.max(1, 640 / Math.max(plane.width, height));
      canvas.width = Math.round(plane.width * zoom);
      canvas.height = Math.round(height * zoom);
      const scaleX = canvas.width / plane.width, scaleY = canvas.height / plane.height;
      const context = canvas.getContext("2d");

      function draw() {
        const slice = together.slices[place];
        slider.value = slice;
        label.textContent = plane.count > 1 ? `${plane.name ? plane.name + " " : "slice "}${slice + 1}/${plane.count}` : "";
        const put = (source, smooth) => { context.imageSmoothingEnabled = smooth; context.drawImage(source, 0, 0, canvas.width, canvas.height); };
        put(picture.kind === "raster" ? base : greys(picture, base, plane, slice, windowFor(picture)), true);
        const { truth, answer, other } = maps;
        const seen = (value) => value && !look.hidden.has(value);
        if (look.errors && truth && answer) {
          put(painted(plane, slice, (at) => { const t = seen(truth[at]) ? truth[at] : 0, a = seen(answer[at]) ? answer[at] : 0; return t === a ? null : !a ? ONLY_TRUTH : !t ? ONLY_ANSWER : OTHER; }, 0.65), false);
        } else {
          if (look.truth && truth && look.truthFill) put(painted(plane, slice, (at) => (seen(truth[at]) ? colourOf(truth[at]) : null), look.opacity), false);
          if (look.answer && answer && look.answerFill) put(painted(plane, slice, (at) => (seen(answer[at]) ? colourOf(answer[at]) : null), look.opacity), false);
        }
        if (other && answer && look.differ) put(painted(plane, slice, (at) => ((seen(answer[at]) ? answer[at] : 0) !== (seen(other[at]) ? other[at] : 0) ? [255, 255, 255] : null), 0.75), false);
        if (look.truth && truth && !look.truthFill) outlines(context, truth, plane, slice, scaleX, scaleY, false);
        if (look.answer && answer && !look.answerFill && !look.errors) outlines(context, answer, plane, slice, scaleX, scaleY, true);
        if (over.marks) {
          if (look.truth) drawMarks(context, over.marks.truth, plane, slice, scaleX, scaleY, "#38d996", false);
          if (look.answer) drawMarks(context, (over.marks.models || [])[over.model], plane, slice, scaleX, scaleY, "#ffb020", true);
        }
        canvas.dataset.drawn = String(Number(canvas.dataset.drawn || 0) + 1);
      }

      const turn = (slice) => {
        together.slices[place] = Math.max(0, Math.min(plane.count - 1, slice));
        for (const one of together.listeners) one(place);
      };
      together.listeners.push((changed) => { if (changed === place) draw(); });
      state.redraws.push(draw);
      slider.addEventListener("input", () => turn(Number(slider.value)));
      canvas.addEventListener("wheel", (event) => { if (plane.count > 1) { event.preventDefault(); turn(together.slices[place] + Math.sign(event.deltaY)); } }, { passive: false });
      canvas.addEventListener("keydown", (event) => {
        const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
        if (by && plane.count > 1) { event.preventDefault(); turn(together.slices[place] + by); }
      });
      if (picture.kind === "volume") canvas.addEventListener("click", (event) => through(event, canvas, picture, plane, together));
      draw();
      return h("div", { style: picture.kind === "volume" ? `flex:${plane.width * plane.unit} 1 0` : "" }, canvas, plane.count > 1 ? h("figcaption", null, label, slider) : null);
    }

    // The other planes go through the point that is clicked.
    function through(event, canvas, picture, plane, together) {
      const rect = canvas.getBoundingClientRect();
      const u = Math.floor(((event.clientX - rect.left) / rect.width) * plane.width), v = Math.floor(((event.clientY - rect.top) / rect.height) * plane.height);
      const [a, b, c] = picture.shape;
      const point = { axial: [a - 1 - u, b - 1 - v, null], coronal: [a - 1 - u, null, c - 1 - v], sagittal: [null, b - 1 - u, c - 1 - v] }[plane.name];
      planesOf(picture).forEach((other, place) => {
        if (point[other.axis] === null) return;
        together.slices[place] = Math.max(0, Math.min(other.count - 1, point[other.axis]));
        for (const one of together.listeners) one(place);
      });
    }

    async function buildNiivue(picture) {
      const build = state.build;
      const holder = h("div", { class: "niivue" }, h("canvas", { "aria-label": `${picture.title || "Image"}, in NiiVue` }));
      views.replaceChildren(holder);
      views.className = "";
      try {
        if (!window.niivue) await report.addScript("niivue.js");
        const { Niivue, NVImage } = window.niivue;
        const shown = new Niivue({ isRadiologicalConvention: true, show3Dcrosshair: true, backColor: [0, 0, 0, 1], crosshairColor: [0.45, 0.7, 0.95, 0.8], crosshairWidth: 0.6, logLevel: "error" });
        await shown.attachToCanvas(holder.firstChild);
        const [low, high] = windowOf(picture);
        const image = await NVImage.loadFromBase64({ base64: picture.nifti, name: "image.nii.gz", cal_min: low, cal_max: high });
        shown.addVolume(image);
        const { masks } = overlays();
        const layers = [];
        for (const [key, data] of masks ? [["truth", masks.truth], ["answer", masks.models[models[0].at]]] : []) {
          if (!data) continue;
          const layer = await NVImage.loadFromBase64({ base64: data.nifti, name: `${key}.nii.gz`, opacity: 0 });
          shown.addVolume(layer);
          layers.push([key, layer]);
        }
        if (state.closed || build !== state.build) { lose(holder); return; }
        const draw = () => {
          const [from, to] = windowOf(picture);
          image.cal_min = from;
          image.cal_max = to;
          for (const [key, layer] of layers) {
            layer.setColormapLabel(colourTable(scene.labels));
            layer.opacity = look[key] ? look.opacity : 0;
          }
          shown.updateGLVolume();
          holder.dataset.drawn = "niivue";
        };
        shown.setSliceType(shown.sliceTypeMultiplanar);
        state.redraws.push(draw);
        state.close.push(() => lose(holder));
        draw();
      } catch (error) {
        if (state.closed) return;
        look.flat = true;
        rebuild();
        says.append(h("br"), `NiiVue could not start (${error.message || error}); these are plain slices.`);
      }
    }

    // Browsers allow few of these contexts at a time.
    function lose(holder) {
      const context = holder.firstChild.getContext("webgl2");
      const ending = context && context.getExtension("WEBGL_lose_context");
      if (ending) ending.loseContext();
    }

    function colourTable(labels) {
      const all = [0, ...labels.map((_, at) => at + 1)];
      const of = (channel) => all.map((label) => (label ? colourOf(label)[channel] : 0));
      return { R: of(0), G: of(1), B: of(2), A: all.map((label) => (label && !look.hidden.has(label) ? 255 : 0)), I: all, labels: ["", ...labels] };
    }

    function toggle() {
      const on = look.truth || look.answer;
      if (on) look.before = [look.truth, look.answer];
      [look.truth, look.answer] = on ? [false, false] : look.before || [true, true];
      drawTools();
      redraw();
    }

    drawTools();
    build();
    return { toggle, close() { state.closed = true; release(); } };
  }

  return { mount };
})();
