// To acknowledge: who knows what was lost says so, and the verdict counts from then on. The books stay.

import { $, text } from "./format.js";

// showAck offers it while something that was lost counts.
export function showAck(s) {
  const lost = [s.lost_wire, s.lost_here, s.damaged].some((a) => Object.values(a).some((n) => n > 0));
  $("ack").hidden = !lost && !s.past;
}

export function makeAck() {
  const form = $("ack-form");
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    text($("ack-state"), "");
    try {
      const answer = await fetch("api/v1/ack", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ note: form.elements.note.value }) });
      if (!answer.ok) throw new Error((await answer.json()).error);
      form.reset();
      $("ack").open = false; // the next status shows what it made of it
    } catch (e) {
      text($("ack-state"), `It was not acknowledged: ${e.message}.`);
    }
  });
}
