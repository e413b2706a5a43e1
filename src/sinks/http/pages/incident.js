"use strict";
// One incident: what happened between the frames, every frame with its verdict, and its picture with the boxes of then.

const find = (id) => document.getElementById(id);
const id = new URLSearchParams(location.search).get("id") || "";
const folder = "/incidents/" + encodeURIComponent(id) + "/";
const colors = ["#4da3ff", "#ffb23e", "#2ec08b", "#b38cff", "#ff7a90", "#7ee0e8"];
let frames = [];
let classes = [];
let chosen = -1;

async function read(name) {
  const answer = await fetch(folder + name);
  if (!answer.ok) throw new Error(answer.status);
  return answer.text();
}

function fact(key, value, title) {
  const element = make("dd", "", value);
  if (title) element.title = title;
  find("facts").append(make("div", "", null, [make("dt", "", text(key)), element]));
}

function pill(kind, content) {
  const element = make("span", "pill", content);
  element.dataset.kind = kind;
  return element;
}

/** Seconds before or after the incident was seen. */
function offset(at, seen) {
  const seconds = (Date.parse(at) - seen) / 1000;
  return (seconds < 0 ? "−" : "+") + Math.abs(seconds).toFixed(2);
}

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** One box; one with an edge that is no number is left out. */
function drawn(found, dashed, width, size) {
  const [left, top, right, bottom] = found.box;
  if (![left, top, right, bottom].every(Number.isFinite)) return [];
  const color = colors[found.class_id % colors.length];
  const box = svg("rect", {
    x: left, y: top, width: Math.max(right - left, 1), height: Math.max(bottom - top, 1),
    fill: "none", stroke: color, "stroke-width": dashed ? width / 2 : width,
  });
  if (dashed) {
    box.setAttribute("stroke-dasharray", width * 2);
    box.setAttribute("opacity", "0.6");
    return [box];
  }
  const label = svg("text", { x: left, y: Math.max(top - width * 2, size.height_px / 40), fill: color, "font-size": size.height_px / 38, "font-weight": 700 });
  label.textContent = (classes[found.class_id] || found.class_id) + " " + (Number.isFinite(found.score) ? found.score.toFixed(2) : found.score);
  return [box, label];
}

function choose(index) {
  const frame = frames[index];
  if (!frame) return;
  chosen = index;
  const picture = frame.picture;
  const image = find("picture");
  const overlay = find("overlay");
  overlay.replaceChildren();
  image.hidden = !picture;
  overlay.toggleAttribute("hidden", !picture);
  say(find("none"), picture ? "" : text("no_picture_kept"));
  if (picture) {
    image.src = folder + picture.entry;
    const raw = !["rgb8", "bgr8", "gray8"].includes(picture.format);
    if (raw) say(find("none"), text("raw_picture") + " (" + picture.format + ")");
    overlay.setAttribute("viewBox", "0 0 " + picture.size.width_px + " " + picture.size.height_px);
    if (!raw) {
      const width = Math.max(picture.size.width_px / 480, 1);
      for (const found of frame.candidates.slice(0, 200)) overlay.append(...drawn(found, true, width, picture.size));
      for (const found of frame.detections) overlay.append(...drawn(found, false, width, picture.size));
    }
  }
  for (const element of document.querySelectorAll("[data-index]")) element.classList.toggle("chosen", Number(element.dataset.index) === index);
}

function name(frame) {
  return frame.frame === null ? "–" : frame.frame;
}

function row(frame, index, seen) {
  const timings = frame.timings_ms;
  const engine = timings.preprocess_ms + timings.transfer_ms + timings.inference_ms + timings.postprocess_ms;
  const why = [...frame.reasons, frame.error, frame.answered_for].filter(Boolean).join(", ");
  const cells = [offset(frame.at, seen), frame.stream, name(frame), null, frame.detections.length, frame.candidates_in_all, engine.toFixed(1), why];
  const element = make("tr", "", null, cells.map((cell) => (cell === null ? make("td", "", null, [pill(frame.trust, text(frame.trust))]) : make("td", "", cell))));
  element.dataset.index = index;
  element.tabIndex = 0;
  element.addEventListener("click", () => choose(index));
  element.addEventListener("keydown", (key) => key.key === "Enter" && choose(index));
  return element;
}

/** The frames around the first fault as small pictures. */
function strip(first) {
  const from = Math.max(0, first - 3);
  for (let index = from; index < Math.min(frames.length, from + 7); index += 1) {
    const frame = frames[index];
    if (!frame.picture) continue;
    const image = make("img");
    image.src = folder + frame.picture.entry;
    image.alt = "";
    const button = make("button", "", null, [image, make("span", "", name(frame) + (index === first ? " · " + text("at_fault") : ""))]);
    button.dataset.index = index;
    button.dataset.trust = frame.trust;
    button.addEventListener("click", () => choose(index));
    find("strip").append(button);
  }
}

function tell(report) {
  const seen = Date.parse(report.seen_at);
  document.title = "edge-run · " + report.id;
  say(find("title"), text("incident") + ": " + cause(report.reason)[0]);
  fact("when", new Date(seen).toLocaleString(language === "zh" ? "zh-CN" : "en-GB"));
  fact("stream", report.streams.join(", "));
  fact("reasons", report.reason, report.what);
  const known = { ...report, ended: report.ended !== null };
  fact("repaired_by", repair(known), report.steps.join(", "));
  fact("after", lasted(report.recovered_after_ms), report.ended || "");
  fact("bundle", report.engine.bundle + "  " + report.engine.sha256.slice(0, 12), report.engine.sha256);
  fact("backend", report.engine.backend);
  fact("device", report.engine.device);
  fact("recorded", report.frames + " " + text("frames_word") + (report.left_out ? ", " + report.left_out + " " + text("left_out") : ""));
  say(find("between"), text("between"));
  say(find("pictures"), text("pictures"));
  say(find("legend"), text("with_nms") + " ▭   " + text("without_nms"));
  find("events").replaceChildren(...report.events.map((event) => make("tr", "", null, [
    make("td", "", offset(event.at, seen)), make("td", "", text("event_" + event.kind)),
    make("td", "", event.kind === "step" ? text("step_" + event.text) : event.text),
  ])));
  find("heads").replaceChildren(make("tr", "", null, ["offset", "stream", "frame", "trust", "boxes_after", "before_nms", "ms_word", "why"].map((key) => make("th", "", text(key)))));
  find("frames").replaceChildren(...frames.map((frame, index) => row(frame, index, seen)));
  const fault = frames.findIndex((frame) => frame.trust === "fault");
  const nearest = frames.findIndex((frame) => Date.parse(frame.at) >= seen);
  const first = Math.max(fault >= 0 ? fault : nearest, 0);
  strip(first);
  choose(first);
  const line = find("frames").children[Math.max(first - 4, 0)];
  if (line) document.querySelector(".scroll").scrollTop = line.offsetTop - line.parentElement.offsetTop;
}

const back = make("a", "", text("back"));
back.href = "/" + (wanted ? "?lang=" + encodeURIComponent(wanted) : "");
find("links").append(back);
document.addEventListener("keydown", (key) => {
  if (key.key === "ArrowLeft") choose(chosen - 1);
  if (key.key === "ArrowRight") choose(chosen + 1);
});

Promise.all([read("incident.json"), read("frames.jsonl"), read("manifest.json")]).then(([report, lines, manifest]) => {
  // A last line without an end was cut off with its process.
  frames = lines.slice(0, lines.lastIndexOf("\n") + 1).split("\n").filter(Boolean).map((line) => JSON.parse(line));
  classes = JSON.parse(manifest).classes || [];
  find("incident").hidden = false;
  tell(JSON.parse(report));
}).catch(() => {
  find("missing").hidden = false;
  say(find("missing"), text("no_incident_there"));
});
