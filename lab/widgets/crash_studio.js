// The crash studio: the learner's lines as a listbox, a prediction, four buttons, and what happens, in three lanes.

const MOST_EVENTS = 300; // as in crash_studio.py
const PAGE = 10; // lines that Page Up and Page Down go by
const LANES = ["publisher", "receiver", "store"];

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children); // strings become text, never markup
  return element;
}

// A button that keeps the focus while it cannot be pressed.
function button(words, press) {
  const element = make("button", { type: "button", "aria-disabled": "true" }, words);
  element.addEventListener("click", () => {
    if (element.getAttribute("aria-disabled") !== "true") press();
  });
  return element;
}

function enable(element, possible) {
  element.setAttribute("aria-disabled", String(!possible));
}

function field(words, attributes) {
  const input = make("input", { type: "number", step: "1", ...attributes });
  return { input, label: make("label", {}, `${words} `, input) };
}

// --- the source -----------------------------------------------------------------------------------------------------

function makeListbox(prefix, name, chosen) {
  const box = make("div", {
    role: "listbox", tabindex: "0", class: "rlab-source rlab-code", "aria-label": `Lines of ${name}`,
  });
  let options = [];
  let selected = null;

  function select(option, keepView = false) {
    if (!option) return;
    if (selected) selected.setAttribute("aria-selected", "false");
    selected = option;
    selected.setAttribute("aria-selected", "true");
    box.setAttribute("aria-activedescendant", selected.id);
    if (!keepView) reveal(selected);
    chosen(Number(selected.dataset.line));
  }

  // Not scrollIntoView: that would move the notebook, too.
  function reveal(option) {
    const top = option.offsetTop - box.offsetTop;
    if (top < box.scrollTop) box.scrollTop = top;
    const bottom = top + option.offsetHeight - box.clientHeight;
    if (bottom > box.scrollTop) box.scrollTop = bottom;
  }

  function fill(lines) {
    selected = null;
    box.removeAttribute("aria-activedescendant");
    options = [];
    box.replaceChildren(
      ...lines.map(([text, possible], index) => {
        const number = make("span", { class: "rlab-line-number", "aria-hidden": "true" }, String(index + 1));
        const line = make("div", { class: "rlab-line" }, number, make("span", { class: "rlab-text" }, text || " "));
        if (!possible) {
          line.setAttribute("role", "presentation");
          return line;
        }
        line.setAttribute("role", "option");
        line.setAttribute("aria-selected", "false");
        line.setAttribute("aria-label", `line ${index + 1}: ${text.trim()}`);
        line.id = `${prefix}-${index + 1}`;
        line.dataset.line = String(index + 1);
        line.addEventListener("click", () => select(line, true));
        options.push(line);
        return line;
      }),
    );
    chosen(0);
  }

  box.addEventListener("keydown", (event) => {
    const here = options.indexOf(selected);
    const last = options.length - 1;
    const target = {
      ArrowDown: here + 1,
      ArrowUp: here < 0 ? last : here - 1,
      PageDown: here + PAGE,
      PageUp: here - PAGE,
      Home: 0,
      End: last,
    }[event.key];
    if (target === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    select(options[Math.max(0, Math.min(last, target))]);
  });
  return { box, fill };
}

// --- the diagram ----------------------------------------------------------------------------------------------------

function makeDiagram() {
  const list = make("ol", { class: "rlab-events" });
  const heads = LANES.map((lane) => make("div", { class: `rlab-lane rlab-${lane}` }, lane));
  const inner = make("div", { class: "rlab-diagram" }, make("div", { class: "rlab-lanes" }, ...heads), list);
  const frame = make(
    "div", { class: "rlab-frame", tabindex: "0", role: "region", "aria-label": "What happened, in three lanes" }, inner,
  );

  const hidden = (words) => make("span", { class: "rlab-spoken" }, words);

  function row(event) {
    const item = make("li", { class: `rlab-event rlab-${event.kind.replace(" ", "-")}` });
    if (event.kind.startsWith("to ") || event.kind === "lost") {
      const [from, to] = event.kind === "to receiver" ? ["publisher", "receiver"] : ["receiver", "publisher"];
      const words = make("code", {}, event.words);
      const message = make("div", { class: "rlab-message" }, hidden(`${from} to ${to}: `), words);
      if (event.again) message.append(make("strong", {}, " again"));
      if (event.kind === "lost") message.append(" ✗");
      message.append(make("div", { class: "rlab-arrow", "aria-hidden": "true" }));
      item.append(message);
    } else {
      const mark = event.kind === "cut" ? "⚡ " : "";
      item.append(make("div", { class: `rlab-words rlab-in-${event.lane}` }, hidden(`${event.lane}: `), mark + event.words));
    }
    return item;
  }

  function add(event) {
    list.append(row(event));
    while (list.children.length > MOST_EVENTS) list.firstChild.remove();
    frame.scrollTop = frame.scrollHeight;
  }

  return { frame, add, clear: () => list.replaceChildren() };
}

// --- the whole ------------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const view = crypto.randomUUID ? crypto.randomUUID() : String(Math.random());
  const name = model.get("name");
  let state = { busy: true, after: "new", found: [] };
  let line = 0;

  const say = (message) => model.send({ view, ...message });
  const where = make("strong", {}, "no line yet");
  const source = makeListbox(`rlab-${view}`, name, (number) => {
    line = number;
    where.textContent = number ? `line ${number}` : "no line yet";
    update();
  });
  const times = make("input", { type: "number", min: "1", max: "50", value: "1", "aria-label": "which time the line runs" });
  const cursor = field("cursor", { min: "-1" });
  const total = field("total", {});
  const unsure = make("input", { type: "checkbox" });
  const advice = make("p", { id: `rlab-advice-${view}` }, "");
  const kill = button("⚡ Kill here", () => {
    const prediction = unsure.checked ? null : { last: Number(cursor.input.value), total: Number(total.input.value) };
    say({ kind: "kill", line, times: Number(times.value), prediction });
    cursor.input.value = total.input.value = "";
    unsure.checked = false;
  });
  kill.setAttribute("aria-describedby", advice.id);
  const run = button("▶ Run", () => say({ kind: "run" }));
  const restart = button("↻ Restart", () => say({ kind: "run" }));
  const reset = button("Reset", () => say({ kind: "reset" }));
  const map = button("Show the crash map", () => say({ kind: "map" }));
  const told = make("p", {});
  const verdict = make("p", { class: "rlab-notice" });
  const diagram = makeDiagram();
  const rows = make("tbody");
  const heads = ["process", "how it ended", "cursor", "total", "ledger"].map((words) => make("th", { scope: "col" }, words));
  const found = make(
    "table", { class: "rlab-ledger rlab-found" },
    make("caption", {}, "what the next process finds in the store"), make("thead", {}, make("tr", {}, ...heads)), rows,
  );
  const mapPlace = make("div", { class: "rlab-map" });

  const guess = make(
    "fieldset", {}, make("legend", {}, "Predict first: what will the next process find in the store?"),
    make("div", { class: "rlab-row" }, cursor.label, total.label, make("label", {}, unsure, " I don't know")),
  );
  // The notebook takes arrow keys and letters for its own, even where a control of ours has the focus.
  el.addEventListener("keydown", (event) => event.stopPropagation());
  el.replaceChildren(
    make(
      "section", { class: "rlab rlab-studio", "aria-label": `Crash studio, ${name}`, "data-lm-suppress-shortcuts": "true" },
      make("h3", {}, `Crash studio: ${name}`),
      make(
        "p", {},
        "A publisher has three events, 0: +5, 1: −2 and 2: +9, and sends event 1 twice. Choose the line before which the ",
        "power goes out. The store is the file ", make("code", {}, model.get("store")), ", which belongs to this studio: ",
        make("code", {}, `watch_store("${model.get("store")}")`), " shows it live.",
      ),
      source.box,
      make(
        "p", {}, "The power goes out before ", where, " runs for time number ", times, " in that process.",
      ),
      guess, advice,
      make("div", { class: "rlab-row", role: "group", "aria-label": "What to do" }, kill, restart, run, reset),
      make("div", { role: "status" }, told, verdict), found, diagram.frame,
      make("div", { class: "rlab-row" }, map), mapPlace,
    ),
  );

  function whole(input) {
    return input.value !== "" && Number.isInteger(Number(input.value));
  }

  function lacking() {
    if (state.busy) return "One thing at a time: something is running.";
    if (!line) return "Choose a line first: click on it, or go to the list and use the arrow keys.";
    if (!whole(times) || times.value < 1 || times.value > 50) return "The time is a number from 1 to 50.";
    if (!unsure.checked && !(whole(cursor.input) && whole(total.input))) {
      return "Now predict: fill in both numbers, or tick that you don't know.";
    }
    return "";
  }

  function update() {
    const missing = lacking();
    advice.textContent = missing || "Ready: press Kill here.";
    enable(kill, !missing);
    enable(run, !state.busy && state.after !== "cut");
    enable(restart, !state.busy && state.after === "cut");
    enable(reset, !state.busy);
    enable(map, !state.busy);
    cursor.input.disabled = total.input.disabled = unsure.checked;
    if (told.textContent !== (state.told || "")) told.textContent = state.told || "";
    if (verdict.textContent !== (state.verdict || "")) verdict.textContent = state.verdict || "";
    verdict.hidden = !state.verdict;
    found.hidden = state.found.length === 0;
    rows.replaceChildren(
      ...state.found.map((each) =>
        make("tr", {}, ...[each.process, each.how, each.last, each.total, each.ledger].map((words) => make("td", {}, words))),
      ),
    );
  }

  // The judge's own report, in which every piece of a learner's text is escaped; no script in it would run either.
  function showMap(html) {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    mapPlace.replaceChildren(...parsed.body.childNodes);
  }

  function clear() {
    diagram.clear();
    mapPlace.replaceChildren();
  }

  function take(message) {
    switch (message.kind) {
      case "all":
        if (message.for !== view) return;
        clear();
        state = message.state;
        source.fill(message.lines);
        message.events.forEach(diagram.add);
        showMap(message.map);
        break;
      case "lines":
        source.fill(message.lines);
        break;
      case "state":
        state = message.state;
        break;
      case "event":
        diagram.add(message.event);
        return;
      case "map":
        showMap(message.map);
        return;
      case "clear":
        clear();
        return;
    }
    update();
  }

  for (const input of [times, cursor.input, total.input, unsure]) input.addEventListener("input", update);
  update();
  const leave = () => say({ kind: "bye" });
  model.on("msg:custom", take);
  window.addEventListener("pagehide", leave);
  say({ kind: "hello" });
  return () => {
    model.off("msg:custom", take);
    window.removeEventListener("pagehide", leave);
    leave();
  };
}

export default { render };
