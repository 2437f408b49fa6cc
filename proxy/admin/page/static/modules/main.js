// Every two seconds all documents are asked for, one after the other, and shown.

import { Actions } from "./actions.js";
import { get } from "./api.js";
import { showCrossers } from "./crossers.js";
import { announce, byId, setAttribute, setText } from "./dom.js";
import { linkHeadings } from "./docs.js";
import { showFleetSums } from "./fleet_sums.js";
import { FlowPicture } from "./flows.js";
import { foldSections } from "./fold.js";
import { makePlots } from "./plots.js";
import { showBuffers, showErrors, showMoney } from "./sections.js";
import { showFresh, showStale, showState } from "./state.js";
import { makeTables } from "./tables.js";
import { startTheme } from "./theme.js";

const EVERY_MS = 2_000;
const QUESTIONS = {
  topics: { contains: "", limit: 100 },
  connections: { contains: "", limit: 100 },
  segments: { limit: 100 },
  errors: { limit: 50 },
};

class Page {
  constructor() {
    this.shown = {};
    this.paused = false;
    this.pauses = 0;
    this.lastAnswer = null;
    this.timer = null;
    this.asking = false;
    this.again = false;
    this.plots = makePlots(byId("plot-grid"));
    this.picture = new FlowPicture(byId("flow-picture"));
    this.actions = new Actions();
    this.tables = makeTables((resource, question) => {
      QUESTIONS[resource] = { ...question };
      this.now();
    });
  }

  start() {
    startTheme();
    byId("pause").addEventListener("click", () => this.pause(!this.paused));
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !this.paused) this.now();
    });
    foldSections();
    followSections();
    this.now();
  }

  pause(paused) {
    this.paused = paused;
    this.pauses += 1;
    setAttribute(byId("pause"), "aria-pressed", paused);
    setText(byId("pause"), paused ? "Resume" : "Pause");
    announce(paused ? "Values are held." : "Values are updated again.");
    clearTimeout(this.timer);
    if (!paused) this.now();
    else setText(byId("updated"), `${byId("updated").textContent.replace(" · paused", "")} · paused`);
  }

  /** Ask now, or once more when the round that is under way is over: there is one request at a time. */
  now() {
    clearTimeout(this.timer);
    if (this.asking) this.again = true;
    else this.round();
  }

  async round() {
    this.asking = true;
    const [began, pauses] = [performance.now(), this.pauses];
    const over = () => this.pauses !== pauses;
    try {
      await this.askAll(over);
    } catch (error) {
      if (error.name !== "Error") console.error(error);
      if (!over()) showStale(this.lastAnswer, error.message);
    }
    this.asking = false;
    if (this.again) {
      this.again = false;
      this.now();
    } else if (!this.paused && !document.hidden) {
      this.timer = setTimeout(() => this.now(), Math.max(0, EVERY_MS - (performance.now() - began)));
    }
  }

  /** All documents; what comes when the round is `over`, by a click on Pause, is not shown any more. */
  async askAll(over) {
    const overview = await get("overview");
    const history = await get("history");
    if (over()) return;
    this.show({ overview, history });
    for (const name of ["fleet", "connections", "errors", "topics", "segments"]) {
      const answer = await get(name, QUESTIONS[name]);
      if (over()) return;
      this.show({ [name]: answer });
    }
    this.lastAnswer = Date.now();
    showFresh(this.lastAnswer);
    if (this.paused) setText(byId("updated"), `${byId("updated").textContent} · paused`);
  }

  show(news) {
    Object.assign(this.shown, news);
    const { overview, history, fleet, connections, topics, segments, errors } = this.shown;
    if (news.overview) {
      showState(overview, history);
      showMoney(overview, history);
      showBuffers(overview.buffers ?? []);
      this.tables.flows.update(overview.flows ?? []);
      for (const plot of this.plots) plot.update(history.samples ?? []);
      this.actions.update(overview);
      linkHeadings(overview.docs_url ?? "");
    }
    if (news.overview || news.fleet) this.picture.update(overview, fleet);
    if (news.fleet) {
      showFleetSums(fleet.sums ?? {});
      this.tables.proxies.update(fleet.proxies ?? []);
      this.tables.brokers.update(fleet.brokers ?? []);
    }
    if (news.connections) {
      this.tables.connections.update(connections.connections, connections.total);
      // A filter of the table is none of the list of those who cross.
      if (!QUESTIONS.connections.contains) showCrossers(byId("crossers"), connections.connections, overview, fleet);
    }
    if (news.topics) this.tables.topics.update(topics.topics, topics.total);
    if (news.segments) this.tables.segments.update(segments.segments);
    if (news.errors) showErrors(errors.errors);
  }
}

/** Mark the link of the section that is being looked at. */
function followSections() {
  const links = new Map([...document.querySelectorAll(".sections a")].map((link) => [link.hash.slice(1), link]));
  const mark = (entries) => {
    const entered = entries.find((entry) => entry.isIntersecting);
    if (!entered) return;
    for (const [id, link] of links) setAttribute(link, "aria-current", id === entered.target.id ? "true" : null);
  };
  const watcher = new IntersectionObserver(mark, { rootMargin: "-13% 0px -80% 0px" });
  for (const id of links.keys()) watcher.observe(byId(id));
}

new Page().start();
