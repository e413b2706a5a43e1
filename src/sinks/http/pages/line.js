"use strict";
// The operator's page: one word a station.

const marks = { pass: "✓", reject: "✕", not_inspected: "!", running: "✓", check: "!", no_data: "?" };
const stations = document.getElementById("stations");
const tiles = new Map();
let gone = true;

class Tile {
  constructor(name) {
    this.name = name;
    this.mark = make("span", "mark");
    this.word = make("span", "word");
    this.why = make("p", "why");
    this.todo = make("p", "todo");
    this.since = make("p", "since");
    this.hand = make("p", "hand");
    this.counts = make("p", "counts");
    this.image = make("img");
    this.picture = new Picture(this.image, name);
    this.started = 0;
    this.element = make("section", "station", null, [
      (this.title = make("h1", "", name)),
      make("div", "verdict", null, [this.mark, this.word]),
      make("div", "below", null, [
        make("div", "advice", null, [this.todo, this.why, this.hand, this.since]),
        make("div", "look", null, [this.image]),
      ]),
      this.counts,
    ]);
  }

  show(stream, product) {
    this.stream = stream;
    say(this.title, product ? this.name + "  ·  " + product : this.name);
    const started = Date.now() - stream.since_s * 1000;
    if (Math.abs(started - this.started) > 1500) this.started = started;
    this.picture.show(stream.picture && !gone);
    this.draw();
  }

  draw() {
    const stream = this.stream;
    if (!stream) return;
    const word = gone ? "no_data" : stream.word;
    this.element.dataset.word = word;
    say(this.mark, marks[word]);
    say(this.word, text(word));
    const matter = stream.because ? cause(stream.because) : null;
    const inTheWay = word === "not_inspected" || word === "check";
    say(this.todo, gone ? text("do_no_data") : inTheWay && matter ? matter[1] : text("do_" + word));
    say(this.why, gone || !matter ? "" : matter[0]);
    const known = stream.because !== "starting" && stream.because !== "no_part" && this.started > 0;
    say(this.hand, !gone && word === "not_inspected" && known ? text("by_hand") + " " + clock(this.started) : "");
    say(this.since, gone ? "" : this.sinceText(stream, word));
    const totals = stream.totals;
    say(this.counts, gone ? "" : ["pass", "reject", "not_inspected"].map((key) => text(key) + " " + totals[key]).join("   ·   "));
    if (gone) this.picture.show(false);
  }

  sinceText(stream, word) {
    const parts = [];
    if (word !== "not_inspected") parts.push(text("since") + " " + clock(this.started));
    if (stream.part) parts.push(text("part") + " " + stream.part);
    if (word !== "reject" && stream.last_reject_s !== null) {
      parts.push(text("last_reject") + " " + duration(stream.last_reject_s) + (language === "zh" ? "" : " ") + text("ago"));
    }
    return parts.join("   ·   ");
  }
}

listen(
  (snapshot) => {
    gone = false;
    stations.dataset.count = Math.min(snapshot.streams.length, 9);
    for (const stream of snapshot.streams) {
      if (!tiles.has(stream.name)) {
        const tile = new Tile(stream.name);
        tiles.set(stream.name, tile);
        stations.append(tile.element);
      }
      tiles.get(stream.name).show(stream, snapshot.products.wanted || snapshot.products.active);
    }
  },
  (silent) => {
    gone = silent;
    for (const tile of tiles.values()) tile.draw();
    if (silent && tiles.size === 0) say(stations, text("do_no_data"));
    else if (tiles.size === 0) say(stations, "");
  },
);
