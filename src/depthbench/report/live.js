(() => {
  // a report is one page of a folder; the list of studies is the folder itself
  const base = location.pathname.replace(/report\.html$/, "").replace(/\/?$/, "/");
  // what the page was made from: an answer to a question later may be of something newer
  const { version } = document.documentElement.dataset;
  const lists = [...document.querySelectorAll("select")];
  const buttons = [...document.querySelectorAll("button[aria-pressed]")];
  const place = `depthbench:${base}`;
  const key = (one) => JSON.stringify({ ...one.dataset });
  const pressed = (one) => one.getAttribute("aria-pressed") === "true";

  function keep() {
    const chosen = Object.fromEntries(lists.map((list) => [key(list), list.value]));
    sessionStorage.setItem(place, JSON.stringify({ chosen, held: buttons.filter(pressed).map(key) }));
  }

  // what is there no more stays as the page has it
  function restore({ chosen, held }) {
    for (const list of lists) {
      const value = chosen[key(list)];
      if (value === list.value || ![...list.options].some((option) => option.value === value)) continue;
      list.value = value;
      list.dispatchEvent(new Event("change"));
    }
    for (const button of buttons) {
      if (held.includes(key(button)) && !pressed(button)) button.click();
    }
  }

  async function look() {
    try {
      const answer = await fetch(`${base}version`);
      const now = answer.ok ? await answer.text() : "";
      if (now === version) return;
      keep();
      location.reload();
    } catch {
      // the server has ended: the page stays as it is
    }
  }

  const kept = sessionStorage.getItem(place);
  if (kept) restore(JSON.parse(kept));
  look();
  setInterval(look, 3000);
})();
