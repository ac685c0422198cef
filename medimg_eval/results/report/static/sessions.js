"use strict";
// Sessions of models that answer in several steps: thoughts, calls of tools and their results, with the images that they gave.
const sessions = (() => {
  const { h } = report;
  const short = (text) => h("div", { class: "said" }, text);
  const facts = (values) => h("span", { class: "soft small" }, values.filter(Boolean).join(", "));
  const seconds = (value) => (value === undefined ? "" : `${value.toPrecision(2)} s`);
  const titles = { model: "model", tool: "tool", user: "user", stop: "end" };

  function stepOf(step, images, folder) {
    const usage = step.usage || {};
    const head = h("h3", null, `${step.number}. ${step.name || step.agent || titles[step.kind] || step.kind} `,
      facts([seconds(step.kind === "tool" ? step.seconds : usage.seconds), usage.output === undefined ? "" : `${usage.output} tokens`, step.finish]),
      step.error ? h("span", { class: "badge bad" }, step.error) : null);
    const body = [];
    if (step.thought) body.push(h("details", null, h("summary", { class: "small" }, "Thought"), short(step.thought)));
    if (step.arguments !== undefined) body.push(h("div", { class: "small" }, h("b", null, "with "), h("code", null, step.arguments)));
    if (step.text) body.push(short(step.text));
    for (const call of step.calls || []) body.push(h("div", { class: "small" }, h("b", null, "calls "), h("code", null, call)));
    for (const name of step.images || []) {
      const file = (images || {})[name];
      body.push(file ? h("img", { src: folder + file, alt: `image that ${step.name || step.kind} gave`, loading: "lazy", style: "max-width:min(100%,24rem);display:block" }) : h("p", { class: "soft small" }, "an image, which was not drawn"));
    }
    return h("div", { class: "turn" }, head, body);
  }

  // One card with a column for each model; nothing where no model took steps.
  function card(names, steps, images, folder) {
    if (!steps.some((one) => (one || []).length)) return [];
    const columns = names.map((name, place) => h("div", null, h("h3", null, name), (steps[place] || []).map((step) => stepOf(step, images && images[place], folder))));
    return [h("section", { class: "card", "aria-label": "Session" }, h("h2", null, "Step by step"), h("div", { class: "answers" }, columns))];
  }

  return { card };
})();
