"use strict";
// What all pages share: data that scripts bring, elements, dark and light. Text from outside is put in as text, never as HTML.
const report = (() => {
  const kept = new Map();
  const waiting = new Map();
  const starts = new Map();
  const root = document.documentElement.dataset.root || ""; // of pages in folders below
  const byId = (id) => document.getElementById(id);

  // What the data files call.
  function take(name, text) {
    const value = JSON.parse(text);
    kept.set(name, value);
    const wait = waiting.get(name);
    waiting.delete(name);
    if (wait) wait.resolve(value);
    if (starts.has(name)) starts.get(name)();
  }

  // Calls `start` once the data of a name are there.
  function begin(name, start) {
    starts.set(name, () => {
      byId("theme").addEventListener("click", flip);
      byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
      start();
    });
  }

  // Pages from disk may not fetch, but they may add scripts.
  function load(name) {
    if (kept.has(name)) return Promise.resolve(kept.get(name));
    if (!waiting.has(name)) {
      const wait = {};
      wait.promise = new Promise((resolve, reject) => Object.assign(wait, { resolve, reject }));
      waiting.set(name, wait);
      addScript(root + name + ".js").catch(() => {
        waiting.delete(name);
        wait.reject(new Error(`${name}.js is not there`));
      });
    }
    return waiting.get(name).promise;
  }

  function addScript(src) {
    return new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = src;
      element.onload = () => { element.remove(); resolve(); };
      element.onerror = () => { element.remove(); reject(new Error(src)); };
      document.head.append(element);
    });
  }

  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "class") element.className = value;
      else if (name === "style") element.style.cssText = value;
      else if (name === "value") element.value = value;
      else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) element.append(child);
    return element;
  }

  // ---- names in heads of columns

  const DASH = "–";

  // Names of at most so many characters, as far as they stay different: what those that begin alike all share becomes
  // "…". What cannot be shortened so stays whole.
  function shortened(names, most = 24) {
    const parted = names.map((name) => name.split(/(?<=[\s,/_:()-])/));
    const found = names.map((name, at) => (name.length <= most ? name : withoutShared(parted, at, most)));
    const cut = found.map((name, at) => (name.length <= most ? name : `${name.slice(0, most >> 1)}…${name.slice(1 - (most >> 1))}`));
    const times = (list, name) => list.filter((one) => one === name).length;
    return names.map((name, at) => (times(cut, cut[at]) === 1 ? cut[at] : times(found, found[at]) === 1 ? found[at] : name));
  }

  function withoutShared(parted, at, most) {
    const bare = (part) => part.replace(/[\s,/_:()-]+$/, "");
    const parts = parted[at];
    const alike = parted.filter((others) => bare(others[0]) === bare(parts[0]));
    if (alike.length < 2) return parts.join("");
    const shared = (part) => alike.every((others) => others.includes(part));
    const kept = (from) => {
      let text = "";
      parts.forEach((part, place) => { if (place < from || !shared(part)) text += part; else if (!text.endsWith("…")) text = bare(text) + "…"; });
      return text.trim();
    };
    // As much of the beginning as there is room for tells where the name comes from.
    for (let from = parts.length - 1; from > 0; from--) if (kept(from).length <= most) return kept(from);
    return kept(0);
  }

  // ---- dark and light

  function theme(next) {
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("medimg_eval theme", next); } catch { /* pages from disk may have no storage */ }
  }

  function chosenTheme() {
    let stored = null;
    try { stored = localStorage.getItem("medimg_eval theme"); } catch { /* as above */ }
    return stored || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  const flip = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

  document.documentElement.dataset.theme = chosenTheme();

  return { take, begin, load, addScript, h, byId, kept, flip, shortened, DASH };
})();
