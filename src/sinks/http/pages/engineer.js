"use strict";
// The engineer's page: every stream with its picture, trust, reasons, timings and counts.

const find = (id) => document.getElementById(id);
const cards = new Map();
const stages = ["preprocess", "transfer", "inference", "postprocess"];

/** A list of names and values whose values can be set later. */
class Facts {
  constructor(element, keys) {
    this.values = new Map();
    for (const key of keys) {
      const value = make("dd");
      this.values.set(key, value);
      element.append(make("div", "", null, [make("dt", "", text(key)), value]));
    }
  }

  /** Shows only some of them. */
  keep(keys) {
    for (const [key, value] of this.values) value.parentElement.hidden = !keys.includes(key);
  }

  set(key, value, title) {
    const element = this.values.get(key);
    say(element, value);
    if (title !== undefined && element.title !== title) element.title = title;
  }
}

const ms = (value) => (value < 100 ? value.toFixed(1) : Math.round(value)) + " ms";

class Card {
  constructor(name) {
    this.state = make("span", "state");
    this.trust = make("span", "pill");
    this.decision = make("span", "pill");
    this.image = make("img");
    this.none = make("p", "none");
    this.reasons = make("ul", "reasons");
    this.picture = new Picture(this.image, name);
    const facts = make("dl", "facts");
    this.facts = new Facts(facts, ["rate", "age_p50", "age_p99", "last_frame", "frame", "dropped", "before_nms", "soft_checks"]);
    const totals = make("dl", "facts totals");
    this.totals = new Facts(totals, ["trusted", "suspect", "fault", "pass", "reject", "not_inspected"]);
    this.bar = make("div", "bar");
    this.parts = stages.map((stage) => make("span", stage));
    this.bar.append(...this.parts);
    this.legend = make("p", "legend");
    this.boxes = make("tbody");
    this.element = make("section", "card", null, [
      make("h2", "", null, [make("span", "name", name), this.state, this.trust, this.decision]),
      make("div", "seen", null, [
        make("div", "view", null, [this.image, this.none]),
        make("table", "", null, [this.boxes]),
      ]),
      make("div", "data", null, [
        this.reasons,
        facts,
        make("h3", "", text("timings")), this.bar, this.legend,
        make("h3", "", text("totals")), totals,
      ]),
    ]);
  }

  show(stream) {
    this.element.dataset.state = stream.state;
    say(this.state, text("state_" + stream.state) + (stream.lost ? ": " + stream.lost : ""));
    const isLive = stream.state === "live";
    const hasRule = !["running", "check"].includes(stream.word);
    pill(this.trust, stream.trust || "", stream.trust && isLive ? text(stream.trust) : "");
    pill(this.decision, hasRule ? stream.word : "", text(hasRule ? stream.word : "no_rule"));
    this.picture.show(stream.picture);
    say(this.none, stream.picture ? "" : text(stream.state === "waiting" ? "waiting" : "no_picture_now"));
    this.showReasons(stream);
    this.facts.set("rate", stream.fps.toFixed(1));
    this.facts.set("age_p50", ms(stream.age_p50_ms));
    this.facts.set("age_p99", ms(stream.age_p99_ms));
    this.facts.set("last_frame", stream.frame_age_ms === null ? text("never") : age(stream.frame_age_ms));
    this.facts.set("frame", stream.frame);
    this.facts.set("dropped", stream.frames_dropped);
    this.facts.set("before_nms", stream.boxes_before_nms);
    const guard = stream.guard;
    const learnt = guard.soft_checks === "learn" ? " " + guard.good + " / " + guard.wanted : "";
    this.facts.set("soft_checks", text("soft_" + guard.soft_checks) + learnt);
    for (const key of Object.keys(stream.totals)) this.totals.set(key, stream.totals[key]);
    this.showTimings(stream.timings_ms);
    this.showBoxes(stream);
  }

  showReasons(stream) {
    const lines = stream.reasons.map((reason) => [reason, cause(reason)[0]]);
    for (const reason of stream.observed) lines.push([reason, cause(reason)[0] + " (" + text("observed") + ")"]);
    const key = JSON.stringify(lines);
    if (key === this.reasonsKey) return;
    this.reasonsKey = key;
    this.reasons.replaceChildren(...lines.map(([name, line]) => make("li", "", null, [make("code", "", name), " " + line])));
  }

  showTimings(timings) {
    const whole = stages.reduce((sum, stage) => sum + timings[stage], 0) || 1;
    stages.forEach((stage, index) => {
      this.parts[index].style.flexGrow = timings[stage] / whole;
    });
    say(this.legend, stages.filter((stage) => timings[stage] > 0).map((stage) => text(stage) + " " + ms(timings[stage])).join("  ·  "));
  }

  showBoxes(stream) {
    const rows = stream.detections.map((found) => [found.class, found.score.toFixed(2), found.box.map(Math.round).join(", ")]);
    if (rows.length === 0 && stream.state === "live") {
      rows.push([text(stream.trust === "fault" ? "withheld" : "none"), "", ""]);
    }
    const key = JSON.stringify(rows);
    if (key === this.boxesKey) return;
    this.boxesKey = key;
    this.boxes.replaceChildren(...rows.map((row) => make("tr", "", null, row.map((cell) => make("td", "", cell)))));
  }
}

/** The list of incidents, newest first. */
class Incidents {
  constructor(element) {
    this.rows = make("tbody");
    this.none = make("p", "quiet");
    this.table = make("table", "", null, [make("thead", "", null, [
      make("tr", "", null, ["when", "stream", "reasons", "repaired_by", "after", "details"].map((key) => make("th", "", text(key)))),
    ]), this.rows]);
    element.append(make("h2", "", text("incidents")), this.table, this.none);
  }

  show(incidents) {
    const key = JSON.stringify(incidents);
    if (key === this.key) return;
    this.key = key;
    this.table.hidden = incidents.length === 0;
    say(this.none, incidents.length === 0 ? text("no_incident") : "");
    this.rows.replaceChildren(...incidents.map((incident) => this.row(incident)));
  }

  row(incident) {
    const state = make("span", "pill", repair(incident));
    state.dataset.kind = incident.recovered_after_ms === null ? "fault" : "trusted";
    let details = text("not_kept");
    if (incident.kept) {
      details = make("a", "", text("details"));
      details.href = "/incident?id=" + encodeURIComponent(incident.id) + (wanted ? "&lang=" + encodeURIComponent(wanted) : "");
    }
    const why = make("td", "", null, [make("code", "", incident.reason), " " + cause(incident.reason)[0]]);
    why.title = incident.what;
    return make("tr", "", null, [
      make("td", "", when(incident.at)), make("td", "", incident.streams.join(", ")), why,
      make("td", "", null, [state]), make("td", "", lasted(incident.recovered_after_ms)), make("td", "", null, [details]),
    ]);
  }
}

/** Time of day; with the date when it is another day. */
function when(text) {
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  return today ? clock(at.getTime()) : at.toLocaleDateString(language === "zh" ? "zh-CN" : "en-GB") + " " + clock(at.getTime());
}

/** The product that is inspected; where commands are taken, also the change to another one. */
class Products {
  constructor(element) {
    this.element = element;
    this.active = make("strong");
    this.choice = make("select");
    this.choice.setAttribute("aria-label", text("change_to"));
    this.button = make("button", "", text("change"));
    this.answer = make("output");
    element.append(make("label", "", text("product")), this.active, this.choice, this.button, this.answer);
    element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.change(this.choice.value);
    });
  }

  show(products) {
    this.element.hidden = products.known.length === 0;
    const key = JSON.stringify(products.known);
    if (key !== this.key) {
      this.key = key;
      this.choice.replaceChildren(...products.known.map((id) => make("option", "", id)));
      this.choice.value = products.active;
    }
    const wanted = products.wanted && products.wanted !== products.active ? products.wanted : null;
    say(this.active, wanted ? products.active + " → " + wanted : products.active);
    const canChange = products.commands && products.known.length > 1;
    this.choice.hidden = this.button.hidden = !canChange;
    this.button.disabled = this.busy || wanted !== null || this.choice.value === products.active;
  }

  async change(id) {
    if (this.busy || !confirm(text("change_confirm") + " " + id)) return;
    this.busy = true;
    say(this.answer, text("changing"));
    try {
      const body = JSON.stringify({ id });
      const answer = await fetch("/product", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      const words = await answer.text();
      say(this.answer, answer.ok ? text("changed") + " " + id : words);
    } catch {
      say(this.answer, text("lost_connection"));
    }
    this.busy = false;
  }
}

const heads = ["engine", "bundle", "streams", "proved", "memory", "per_run", "devices", "reload"];

/** A cell that carries its head along for narrow pages. */
function cell(key) {
  const element = make("td");
  element.dataset.head = text(key);
  return element;
}

/** One line an engine, where a run has several bundles. */
class Engines {
  constructor(element) {
    this.element = element;
    this.rows = make("tbody");
    element.append(make("table", "", null, [
      make("thead", "", null, [make("tr", "", null, heads.map((key) => make("th", "", text(key))))]), this.rows,
    ]));
    this.lines = [];
  }

  show(engines) {
    this.element.hidden = engines.length < 2;
    if (engines.length < 2) return;
    while (this.lines.length < engines.length) {
      const line = { name: make("strong"), state: make("span", "pill"), cells: heads.slice(1).map(cell) };
      this.lines.push(line);
      this.rows.append(make("tr", "", null, [make("td", "", null, [line.name, " ", line.state]), ...line.cells]));
    }
    engines.forEach((engine, at) => this.line(this.lines[at], engine));
  }

  line(line, engine) {
    say(line.name, engine.label || "–");
    pill(line.state, engine.ready ? "ready" : "not_ready", engineState(engine));
    const cells = [
      engine.bundle ? engine.bundle + " " + engine.sha256.slice(0, 12) : "–",
      engine.streams.join(", "),
      engine.proved_at ? clock(Date.parse(engine.proved_at)) : text("never"),
      bytes(engine.memory_bytes.allocated) + " / " + text("peak") + " " + bytes(engine.memory_bytes.peak),
      engine.frames_per_run ? String(engine.frames_per_run) : "–",
      engine.devices.map(deviceLine).join("  ·  ") || "–",
      reloadLine(engine.reload),
    ];
    cells.forEach((content, at) => say(line.cells[at], content));
    line.cells[0].title = engine.sha256 || "";
    line.cells[6].title = reloadWhy(engine.reload);
    line.cells[5].title = engine.devices.map((device) => device.why || "").join(" ").trim();
  }
}

function engineState(engine) {
  if (!engine.answering) return text("engine_not_answering");
  return text(engine.ready ? "phase_ready" : engine.phase === "ready" ? "not_ready" : "phase_" + engine.phase);
}

function pill(element, kind, content) {
  element.dataset.kind = kind;
  say(element, content);
  element.hidden = !content;
}

function age(milliseconds) {
  return milliseconds < 1000 ? Math.round(milliseconds) + " ms" : duration(milliseconds / 1000);
}

/** A device in a few words: its number, what it does, its memory. */
function deviceLine(device) {
  const memory = device.total_bytes ? " " + bytes(device.used_bytes) + " / " + bytes(device.total_bytes) : "";
  const heat = device.temperature_celsius === null ? "" : " " + device.temperature_celsius + " °C";
  return device.device + " " + text("device_" + device.role) + memory + heat;
}

/** What becomes of another bundle: what is done with it now, else how the last one ended, else whether there is room. */
function reloadLine(reload) {
  if (reload.state !== "idle") return text("reload_" + reload.state);
  if (reload.last) {
    const gap = reload.last.gap_ms === null ? "" : ", " + text("stood_still") + " " + lasted(reload.last.gap_ms);
    return text("end_" + reload.last.how) + gap + "  " + clock(Date.parse(reload.last.at));
  }
  return reload.room ? text("room_" + reload.room) : "–";
}

function reloadWhy(reload) {
  return [reload.last && reload.last.why, reload.said].filter(Boolean).join("\n");
}

const engine = new Facts(find("engine"), ["bundle", "backend", "proved", "engine", "memory", "process", "per_run", "devices", "reload", "uptime"]);
for (const [address, key] of [["/line", "operator_page"], ["/metrics", "metrics"], ["/healthz", "health"]]) {
  const link = make("a", "", text(key));
  link.href = address;
  find("links").append(link);
}
say(find("phase"), text("connecting"));
const incidents = new Incidents(find("incidents"));

const products = new Products(find("products"));
const engines = new Engines(find("engines"));
// With several engines each has a line of its own below.
const ofAll = ["engine", "process", "uptime"];

listen(
  (snapshot) => {
    products.show(snapshot.products);
    engines.show(snapshot.engines);
    if (snapshot.engines.length > 1) engine.keep(ofAll);
    const facts = snapshot.engine;
    const ready = snapshot.ready ? "ready" : snapshot.phase === "ready" ? "not_ready" : "phase_" + snapshot.phase;
    pill(find("phase"), snapshot.ready ? "ready" : "not_ready", text(snapshot.ready ? "phase_ready" : ready));
    engine.set("bundle", facts.bundle ? facts.bundle + "  " + facts.sha256.slice(0, 12) : "–", facts.sha256 || "");
    engine.set("backend", facts.backend || "–");
    engine.set("proved", facts.proved_at ? clock(Date.parse(facts.proved_at)) : text("never"), facts.proved_at || "");
    engine.set("engine", text(facts.answering ? "engine_answering" : "engine_not_answering"));
    const memory = facts.memory_bytes;
    engine.set("memory", bytes(memory.allocated) + " / " + text("peak") + " " + bytes(memory.peak));
    engine.set("per_run", facts.frames_per_run ? String(facts.frames_per_run) : "–");
    engine.set("process", facts.process_resident_bytes ? bytes(facts.process_resident_bytes) : "–");
    const devices = snapshot.devices.map(deviceLine);
    engine.set("devices", devices.join("  ·  ") || "–", snapshot.devices.map((device) => device.why || "").join(" "));
    engine.set("reload", reloadLine(facts.reload), reloadWhy(facts.reload));
    engine.set("uptime", duration(snapshot.uptime_s));
    for (const stream of snapshot.streams) {
      if (!cards.has(stream.name)) {
        const card = new Card(stream.name);
        cards.set(stream.name, card);
        find("streams").append(card.element);
      }
      cards.get(stream.name).show(stream);
    }
    incidents.show(snapshot.incidents);
    find("streams").dataset.count = Math.min(snapshot.streams.length, 4);
  },
  (silent) => {
    document.body.classList.toggle("silent", silent);
    find("silence").hidden = !silent;
    say(find("silence"), text("lost_connection"));
    if (silent) for (const card of cards.values()) card.picture.show(false);
  },
);
