"use strict";
/* Filters, order and opening of the table's cases. The filters stand in the address: report.html#status=FAILED&kernel=mine.so&text=causal */
(() => {
  document.documentElement.classList.add("js");
  const table = document.querySelector("table.cases");
  const cases = [...table.tBodies];
  const form = document.querySelector("form");
  const shown = document.querySelector("#shown");
  const isBad = status => status !== "PASSED" && status !== "SKIPPED";

  function matches(body, filter) {
    const { status, kernel } = body.dataset;
    const line = body.rows[0].textContent.toLowerCase();
    return (!filter.status || filter.status === status || (filter.status === "bad" && isBad(status))) &&
      (!filter.kernel || filter.kernel === kernel) &&
      filter.text.toLowerCase().split(/\s+/).every(word => line.includes(word));
  }

  function apply() {
    const filter = { status: form.status.value, kernel: form.kernel.value, text: form.text.value };
    let count = 0;
    for (const body of cases) {
      body.hidden = !matches(body, filter);
      count += !body.hidden;
    }
    shown.textContent = `${count} of ${cases.length} shown`;
    const set = Object.entries(filter).filter(([, value]) => value);
    history.replaceState(null, "", set.length ? "#" + new URLSearchParams(set) : location.pathname + location.search);
  }

  function readAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    for (const name of ["status", "kernel", "text"]) form[name].value = wanted.get(name) ?? "";
    for (const name of ["status", "kernel"]) if (form[name].selectedIndex < 0) form[name].value = "";
    apply();
  }

  function open(body, on) {
    body.classList.toggle("open", on);
    body.querySelector(".status").setAttribute("aria-expanded", on);
  }

  /* Numbers from the largest, text from A; the other way round the second time. What has no number goes last. */
  function sort(header) {
    const column = header.cellIndex;
    const number = header.classList.contains("n");
    const was = header.getAttribute("aria-sort");
    const descending = was ? was === "ascending" : number;
    const value = body => body.rows[0].cells[column].dataset.v ?? body.rows[0].cells[column].textContent;
    const sign = descending ? -1 : 1;
    const compare = (a, b) => {
      if (!number) return sign * value(a).localeCompare(value(b));
      const x = parseFloat(value(a)), y = parseFloat(value(b));
      if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
      return x === y ? 0 : x < y ? -sign : sign;
    };
    for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    table.append(...[...cases].sort(compare));
  }

  async function copy(button) {
    const code = button.parentNode.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }

  table.addEventListener("click", event => {
    const { target } = event;
    const body = target.closest("tbody");
    if (target.closest("thead button")) sort(target.closest("th"));
    else if (target.closest(".copy")) copy(target.closest(".copy"));
    else if (target.closest("tr.case") && getSelection().isCollapsed) open(body, !body.classList.contains("open"));
  });
  form.addEventListener("input", apply);
  form.addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", readAddress);
  const first = cases.find(body => isBad(body.dataset.status));
  if (first) open(first, true);
  readAddress();
})();
