// Drain and log level, by token. The token is in the field and nowhere else: it goes when the page goes.

import { change } from "./api.js";
import { byId, h, setAttribute, setText } from "./dom.js";

const LEVELS = ["debug", "info", "warning", "error"];

/** The section for actions. */
export class Actions {
  constructor() {
    this.possible = null;
    this.proxy = "this proxy";
  }

  /** Show what is possible. */
  update(overview) {
    this.proxy = overview.proxy ?? "this proxy";
    if (this.possible === overview.actions) return;
    this.possible = overview.actions;
    const place = byId("action-body");
    if (!overview.actions) {
      place.replaceChildren(
        h("p", {}, "This page is read-only here: no token is set. With ", h("code", {}, "admin.token_file"), " in the settings, a client with the token can drain this proxy and set its log level."),
      );
      return;
    }
    place.replaceChildren(this.form(overview.log_level));
  }

  form(level) {
    this.token = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false" });
    this.level = h("select", { id: "log-level" }, ...LEVELS.map((name) => h("option", { value: name, selected: name === level }, name)));
    this.outcome = h("p", { class: "outcome", role: "status" });
    this.setLevel = h("button", { type: "submit" }, "Set log level");
    this.drain = h("button", { type: "button", class: "danger", onclick: () => this.askToDrain() }, "Drain…");
    const submitted = (event) => {
      event.preventDefault();
      this.run("PUT", "log-level", { level: this.level.value }, `The log level is ${this.level.value}.`);
    };
    const explained = h("p", { class: "quiet", id: "token-note" }, "The token is the content of admin.token_file. It is kept in this field only, and sent with what you do here.");
    this.token.setAttribute("aria-describedby", "token-note");
    return h(
      "form",
      { onsubmit: submitted },
      h(
        "div",
        { class: "form-row" },
        h("label", {}, "Token", this.token),
        h("label", {}, "Log level", this.level),
        this.setLevel,
        this.drain,
      ),
      explained,
      this.outcome,
    );
  }

  askToDrain() {
    const dialog = byId("drain-dialog");
    setText(
      byId("drain-text"),
      `${this.proxy} leaves the fleet, answers what is under way, and ends. Clients reconnect to other proxies. Whatever runs it may start it again.`,
    );
    dialog.returnValue = "cancel";
    dialog.onclose = () => {
      if (dialog.returnValue === "drain") this.run("POST", "drain", null, "The drain has begun.");
    };
    dialog.showModal();
    byId("drain-cancel").focus();
  }

  async run(method, path, body, done) {
    if (!this.token.value) {
      this.report("Enter the token first: it is the content of admin.token_file.", true);
      this.token.focus();
      return;
    }
    for (const button of [this.setLevel, this.drain]) button.disabled = true;
    try {
      await change(method, path, body, this.token.value);
      this.report(done, false);
    } catch (error) {
      this.report(`Not done. ${error.message}`, true);
    }
    for (const button of [this.setLevel, this.drain]) button.disabled = false;
  }

  report(text, failed) {
    setText(this.outcome, text);
    setAttribute(this.outcome, "class", failed ? "outcome failed" : "outcome");
  }
}
