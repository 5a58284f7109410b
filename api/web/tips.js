// Tips: what a word of the page means, for mouse, keyboard and screen reader. An element that has
// one is a button whose aria-describedby names the text, which stands in the page as a whole too.

import { make } from "./format.js";

let tip = null, of = null;

// hint makes a button that says more when it is pointed at or focused.
export function hint(label, describedBy) {
  const b = make("button", "hint", label);
  b.type = "button";
  b.setAttribute("aria-describedby", describedBy);
  return b;
}

function show(e) {
  const words = document.getElementById(e.getAttribute("aria-describedby"))?.textContent;
  if (!words) return;
  of = e;
  tip ??= document.body.appendChild(make("div", "tip"));
  tip.setAttribute("aria-hidden", "true"); // a screen reader has read it as the description
  tip.textContent = words;
  tip.hidden = false;
  const r = e.getBoundingClientRect(), gap = 6, w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = `${Math.max(gap, Math.min(r.left, innerWidth - w - gap))}px`;
  tip.style.top = `${r.bottom + gap + h < innerHeight ? r.bottom + gap : r.top - h - gap}px`;
}

function hide() {
  if (tip) tip.hidden = true;
  of = null;
}

const hinted = (e) => e.target.closest?.("button.hint");
for (const name of ["mouseover", "focusin"]) addEventListener(name, (e) => { const h = hinted(e); if (h) show(h); });
for (const name of ["mouseout", "focusout"]) addEventListener(name, (e) => { if (hinted(e) === of) hide(); });
addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });
addEventListener("scroll", () => of && (of === document.activeElement ? show(of) : hide()), true);
