// Replaces what has changed on the page, every two seconds while it is looked at. Without it, the page is as it was when it was loaded.
"use strict";
const said = document.getElementById("said");
let answered = Date.now();
async function look() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh && fresh.innerHTML !== part.innerHTML) part.innerHTML = fresh.innerHTML;
    }
    answered = Date.now();
    said.textContent = "Live: looks again every two seconds.";
  } catch {
    said.textContent = `No answer from the worker for ${Math.round((Date.now() - answered) / 1000)} s. What stands here is older.`;
  }
}
said.textContent = "Live: looks again every two seconds.";
setInterval(look, 2000);
