// The store view. It keeps the moments that it was sent, shows the newest, or the one that the slider stands on.

const MOST_MOMENTS = 200; // as in store_view.py
const WRITING = "✎ Somebody is changing the store; nobody else can see it yet.";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children); // strings become text, never markup
  return element;
}

function figure(name) {
  const value = make("dd", {}, "–");
  return { value, box: make("div", {}, make("dt", {}, name), value) };
}

function inWords(moment) {
  const books = moment.state === "readable" ? `cursor ${moment.last}, total ${moment.total}` : moment.told;
  return `${moment.time}: ${books}${moment.writing ? "; a write transaction is open" : ""}`;
}

function render({ model, el }) {
  const view = crypto.randomUUID ? crypto.randomUUID() : String(Math.random());
  const name = model.get("name");
  let moments = [];
  let following = true;

  const told = make("p", {}, "Looking …");
  const last = figure("cursor (checkpoint.last)");
  const total = figure("total (checkpoint.total)");
  const rows = figure("rows in the ledger");
  const figures = make("dl", { class: "rlab-figures" }, last.box, total.box, rows.box);
  const writing = make("p", { class: "rlab-notice" });
  const body = make("tbody");
  const caption = make("caption", {}, "");
  const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "seq"), make("th", { scope: "col" }, "delta")));
  const ledger = make("table", { class: "rlab-ledger" }, caption, head, body);
  const slider = make("input", { type: "range", min: "1", max: "1", value: "1", "aria-label": `Moments of ${name}` });
  const chosen = make("span"); // the slider itself says the same to who cannot see it
  const live = make("button", { type: "button" }, "Back to now");
  const note = make(
    "p", {},
    "Read over a connection of its own. What is inside an open transaction is invisible to it, as to every other process.",
  );
  const section = make(
    "section", { class: "rlab rlab-store", "aria-label": `Store ${name}`, "data-lm-suppress-shortcuts": "true" },
    make("h3", {}, `Store ${name}`), make("div", { role: "status" }, told, writing), figures, ledger,
    make("div", { class: "rlab-row" }, slider, chosen, live), note,
  );
  // The notebook takes arrow keys and letters for its own, even where a control of ours has the focus.
  section.addEventListener("keydown", (event) => event.stopPropagation());
  el.replaceChildren(section);

  function draw() {
    const place = following ? moments.length : Math.min(Number(slider.value), moments.length);
    const moment = moments[place - 1];
    if (!moment) return;
    slider.max = String(moments.length);
    slider.value = String(place);
    const when = following ? "now" : `moment ${place} of ${moments.length}`;
    slider.setAttribute("aria-valuetext", `${when}, ${inWords(moment)}`);
    chosen.textContent = `${when} (since ${inWords(moment)})`;
    live.disabled = following;
    if (told.textContent !== moment.told) told.textContent = moment.told;
    writing.hidden = !moment.writing;
    writing.textContent = moment.writing ? WRITING : "";
    const readable = moment.state === "readable";
    last.value.textContent = readable ? moment.last : "–";
    total.value.textContent = readable ? moment.total : "–";
    rows.value.textContent = readable ? String(moment.rows) : "–";
    ledger.hidden = moment.ledger.length === 0;
    const hidden = moment.rows - moment.ledger.length;
    caption.textContent = hidden > 0 ? `ledger, its last ${moment.ledger.length} of ${moment.rows} rows` : "ledger";
    body.replaceChildren(
      ...moment.ledger.map((row) => make("tr", {}, ...row.map((value) => make("td", { class: "rlab-number" }, value)))),
    );
  }

  slider.addEventListener("input", () => {
    following = Number(slider.value) === moments.length;
    draw();
  });
  live.addEventListener("click", () => {
    following = true;
    draw();
    slider.focus();
  });

  function take(message) {
    if (message.kind === "all" && message.for === view) {
      moments = message.moments;
    } else if (message.kind === "moment" && moments.every((known) => known.number !== message.moment.number)) {
      moments.push(message.moment);
      if (moments.length > MOST_MOMENTS) {
        moments.shift();
        if (!following) slider.value = String(Math.max(1, Number(slider.value) - 1));
      }
    }
    draw();
  }

  writing.hidden = true;
  ledger.hidden = true;
  live.disabled = true;
  const leave = () => model.send({ kind: "bye", view });
  model.on("msg:custom", take);
  window.addEventListener("pagehide", leave);
  model.send({ kind: "hello", view });
  return () => {
    model.off("msg:custom", take);
    window.removeEventListener("pagehide", leave);
    leave();
  };
}

export default { render };
