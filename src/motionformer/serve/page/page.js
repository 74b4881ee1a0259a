// The page: sends requests to the server and draws the answers. No libraries, no external resources.
// state → request (the only function that talks to the server) → choose a video → trace a point → draw.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { session: "new", limits: null, models: [], kinds: {}, video: null, clip: null, traces: null, point: null, step: 0, playing: true, pending: 0 };
const STEP_MS = 380;
const COLOURS = ["#4353c9", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#e67700"];
const HEAT = [[40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39]]; // inferno, dark to bright
const TOP = 4; // doublings of a uniform map at which the absolute scale ends, as in trace/draw.py
const LEGENDS = {
  trajectory: "Red: the patch you clicked. Heat: its attention in each frame. White line: the peak of the attention. Ellipse: mean and one standard deviation.",
  "class-token": "Heat: attention of the class token over the whole clip.",
  rollout: "Heat: attention rollout to the class token, or to the patch you clicked, through all layers up to this one.",
  gradcam: "Heat: evidence for the class.",
};
const SCALES = {
  relative: (of) => ` Relative scale: from 0 to the ${of}'s largest weight, nothing where the map is near uniform.`,
  absolute: (of) => ` Absolute scale: from a uniform map of the ${of} to ${2 ** TOP} times that.`,
};

// ---- requests

async function request(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { "X-Session": state.session } }).catch(() => {
    throw new Error("the server does not respond: is motionformer serve still running? An upload above the size limit is also cut off like this.");
  });
  if (response.ok) return response;
  const found = await response.json().catch(() => ({}));
  throw new Error(found.error || `HTTP status ${response.status}`);
}

async function attempt(status, work) { // errors are shown on the page, never lost in the console
  $("status").textContent = status;
  state.pending += 1;
  document.body.dataset.busy = "yes";
  try { await work(); } catch (error) { showMessage(error.message); } finally {
    state.pending -= 1;
    if (!state.pending) { $("status").textContent = ""; document.body.dataset.busy = "no"; }
  }
}

function showMessage(text) {
  $("message").textContent = text;
  $("message").hidden = !text;
}

// ---- opening and choosing

async function open() {
  const found = await (await request("api/start", { method: "POST" })).json();
  Object.assign(state, { session: found.session, limits: found.limits, models: found.models, kinds: found.kinds });
  const { megabytes, seconds, megapixels, users, idle_minutes } = found.limits;
  $("limits").textContent = `Limits: ${megabytes} MB, ${seconds} s, ${megapixels} megapixels per frame, ${users} open pages; requests are answered one at a time. Your video stays on the machine that runs the server and is deleted when you upload another, close the page, or are idle for ${idle_minutes} minutes.`;
  for (const one of found.examples) {
    const button = make("button", { type: "button" }, $("examples"));
    button.dataset.video = one.id;
    make("img", { src: one.picture, alt: "" }, button);
    button.append(one.name);
    button.onclick = () => choose(one.id);
  }
  fill($("what"), Object.keys(found.kinds).map((name) => [name, name]));
  const smallest = (key) => Math.min(...state.models.map((model) => model[key]));
  const numbers = (count) => [...Array(count).keys()].map((i) => [String(i), String(i)]);
  fill($("layer"), [["last", "last"], ...numbers(smallest("layers")), ["mean", "mean"]]);
  fill($("head"), [["mean", "mean"], ...numbers(smallest("heads"))]);
  fill($("label"), [["", "predicted"], ...state.models[0].labels.map((name) => [name, name])]);
  await choose(found.examples[0].id);
}

async function choose(id) {
  showMessage("");
  state.video = id;
  for (const button of $("examples").children) button.setAttribute("aria-pressed", button.dataset.video === id);
  $("predictions").replaceChildren();
  await attempt("reading", async () => { await showClip(null); });
  if (state.video === id) await attempt("predicting", async () => { await showPrediction(id); });
}

async function upload(file) {
  showMessage("");
  if (file.size > state.limits.megabytes * 1e6) {
    showMessage(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; the limit is ${state.limits.megabytes} MB. Cut or shrink the video, or start the server with a larger --max-mb.`);
    return;
  }
  await attempt(`uploading ${file.name}`, async () => {
    const found = await (await request(`api/upload?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file })).json();
    await choose(found.id);
  });
}

async function showClip(around) {
  const query = new URLSearchParams({ video: state.video });
  if (around !== null) query.set("around", around);
  const clip = await (await request(`api/clip?${query}`)).json();
  for (const one of clip.clips) one.pictures = await Promise.all(one.images.map(load));
  Object.assign(state, { clip, traces: null, point: null, step: 0, around });
  $("name").textContent = clip.name;
  const first = clip.clips[0].numbers;
  $("position-box").hidden = clip.frames <= first[first.length - 1] - first[0] + 1;
  $("position").max = clip.frames - 1;
  $("position").value = around === null ? first[clip.clips[0].query_index] : around;
  showPosition();
  buildViewers();
  updateControls();
  if ($("what").value !== "trajectory") await showTrace();
}

// ---- tracing

function pointed(event, canvas, model, step) {
  const box = canvas.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width * state.clip.width;
  const y = (event.clientY - box.top) / box.height * state.clip.height;
  const clip = state.clip.clips[model];
  state.point = { x: Math.min(Math.max(x, 0), state.clip.width - 0.01), y: Math.min(Math.max(y, 0), state.clip.height - 0.01), frame: clip.numbers[step] };
  if (!state.kinds[$("what").value].takes_point) { $("what").value = "trajectory"; updateControls(); }
  attempt("tracing", showTrace);
}

function traceQuery() {
  const query = new URLSearchParams({ video: state.video, what: $("what").value, layer: $("layer").value, head: $("head").disabled ? "mean" : $("head").value, scale: $("scale").value });
  if (state.around !== null) query.set("around", state.around);
  if (state.point) for (const key of ["x", "y", "frame"]) query.set(key, state.point[key]);
  if ($("what").value === "gradcam") query.set("label", $("label").value);
  return query;
}

async function showTrace() {
  const query = traceQuery();
  const found = await (await request(`api/trace?${query}`)).json();
  if (String(query) !== String(traceQuery())) return; // another point was clicked meanwhile
  showMessage("");
  state.traces = found;
  updateControls();
  draw();
}

function updateControls() { // disables what does not apply to the chosen kind
  const what = $("what").value;
  $("head").disabled = ["rollout", "gradcam"].includes(what);
  const mean = [...$("layer").options].find((option) => option.value === "mean");
  mean.disabled = what === "rollout";
  if (what === "rollout" && $("layer").value === "mean") $("layer").value = "last";
  $("label-box").hidden = what !== "gradcam" || state.models[0].labels.length === 0;
  $("legend").textContent = LEGENDS[what] + SCALES[$("scale").value](state.kinds[what].per_frame ? "frame" : "clip") + (state.traces && state.traces[0].truth ? " Green: the true path of the disc." : "") + (state.traces ? "" : what === "trajectory" ? " Click a point to start." : "");
  for (const button of $("downloads").querySelectorAll("button")) button.disabled = button.dataset.format !== "prediction" && !state.traces;
}

async function refresh() { // a control was changed
  updateControls();
  if ($("what").value === "trajectory" && !state.point) { state.traces = null; updateControls(); draw(); return; }
  await attempt("tracing", showTrace);
}

// ---- drawing

function buildViewers() {
  $("viewers").replaceChildren();
  state.clip.clips.forEach((clip, model) => {
    const figure = make("figure", { className: "viewer" }, $("viewers"));
    const caption = make("figcaption", {}, figure);
    make("b", { textContent: clip.model }, caption);
    caption.append(` · ${state.models[model].scheme} attention`);
    make("p", { className: "note", hidden: true }, figure);
    const stage = make("canvas", { className: "stage" }, figure);
    stage.onclick = (event) => pointed(event, stage, model, state.step % clip.numbers.length);
    const strip = make("div", { className: "strip" }, figure);
    clip.numbers.forEach((number, step) => {
      const cell = make("div", {}, strip);
      const canvas = make("canvas", {}, cell);
      cell.append(`frame ${number}`);
      canvas.onclick = (event) => pointed(event, canvas, model, step);
    });
  });
  draw();
}

function draw() {
  state.clip.clips.forEach((clip, model) => {
    const figure = $("viewers").children[model];
    figure.dataset.traced = state.traces ? "yes" : "no";
    const note = figure.querySelector(".note"), text = state.traces && state.traces[model].tracks[0].note;
    Object.assign(note, { hidden: !text, textContent: text ? `${text[0].toUpperCase()}${text.slice(1)} (the map hardly differs from a uniform one).` : "" });
    [...figure.querySelectorAll(".strip canvas")].forEach((canvas, step) => paint(canvas, clip, model, step, 176, false));
  });
  drawStages();
}

function drawStages() {
  state.clip.clips.forEach((clip, model) => {
    const figure = $("viewers").children[model];
    const step = state.step % clip.numbers.length;
    paint(figure.querySelector(".stage"), clip, model, step, 660, true);
    [...figure.querySelectorAll(".strip canvas")].forEach((canvas, i) => canvas.classList.toggle("now", i === step));
  });
}

function paint(canvas, clip, model, step, width, grows) {
  const scale = width / state.clip.width;
  if (canvas.width !== width) { canvas.width = width; canvas.height = Math.round(state.clip.height * scale); }
  const pen = canvas.getContext("2d");
  const trace = state.traces && state.traces[model];
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.filter = trace ? "grayscale(0.5)" : "none";
  pen.imageSmoothingEnabled = state.clip.width >= width / 4;
  pen.drawImage(clip.pictures[step], 0, 0, canvas.width, canvas.height);
  pen.filter = "none";
  pen.setTransform(scale, 0, 0, scale, 0, 0); // from here on in pixels of the video
  const [left, top, right, bottom] = clip.visible;
  const f = trace && Math.floor(step / (clip.numbers.length / trace.tracks[0].token_frames.length));
  if (trace) {
    pen.imageSmoothingEnabled = true;
    pen.drawImage(heat(trace, f), left, top, right - left, bottom - top);
  }
  veil(pen, [left, top, right, bottom]);
  if (!trace) return;
  if (trace.truth) drawTruth(pen, trace.truth, step, scale);
  if (trace.query) { drawPath(pen, trace, f, scale, grows); drawQuery(pen, trace, clip, f, scale); }
  if (!trace.tracks[0].token_frames[f].peak) drawFlat(pen, scale);
}

function heat(trace, f) {
  const frames = trace.tracks[0].token_frames;
  const perFrame = state.kinds[trace.what].per_frame;
  const strength = (one) => (perFrame ? 1 : one.mass);
  const count = trace.grid.rows * trace.grid.columns * (perFrame ? 1 : trace.grid.frames);
  const flat = !frames[f].peak;
  const largest = Math.max(...(perFrame ? [frames[f]] : frames).map((one) => strength(one) * Math.max(...one.map.flat())));
  const rows = frames[f].map;
  const small = make("canvas", { width: rows[0].length, height: rows.length });
  const pen = small.getContext("2d");
  const image = pen.createImageData(small.width, small.height);
  rows.flat().forEach((weight, i) => {
    const level = trace.scale === "absolute" ? Math.min(Math.log2(Math.max(strength(frames[f]) * weight * count, 1)) / TOP, 1) : flat ? 0 : strength(frames[f]) * weight / largest;
    const at = level * (HEAT.length - 1), low = Math.min(Math.floor(at), HEAT.length - 2);
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = HEAT[low][c] + (at - low) * (HEAT[low + 1][c] - HEAT[low][c]);
    image.data[4 * i + 3] = 205 * level;
  });
  pen.putImageData(image, 0, 0);
  return small;
}

function veil(pen, [left, top, right, bottom]) { // outside the model's crop
  const { width, height } = state.clip;
  pen.fillStyle = "rgba(255,255,255,.6)";
  pen.fillRect(0, 0, left, height);
  pen.fillRect(right, 0, width - right, height);
  pen.fillRect(left, 0, right - left, top);
  pen.fillRect(left, bottom, right - left, height - bottom);
}

function drawTruth(pen, truth, step, scale) {
  const jump = Math.min(state.clip.width, state.clip.height) / 2; // the disc comes back on the other side
  pen.beginPath();
  truth.forEach(([x, y], i) => {
    const far = i && Math.hypot(x - truth[i - 1][0], y - truth[i - 1][1]) > jump;
    if (i && !far) pen.lineTo(x, y); else pen.moveTo(x, y);
  });
  stroke(pen, "#00d68f", 2 / scale * weight(pen));
  disc(pen, truth[step], 4 / scale * weight(pen), "#00d68f", "#1f2430", scale);
}

function drawPath(pen, trace, f, scale, grows) { // nothing where a map is near uniform: its peak is null, and the line has a gap
  const frames = trace.tracks[0].token_frames, thick = weight(pen) / scale;
  const shown = grows ? frames.slice(0, f + 1) : frames;
  pen.beginPath();
  shown.forEach(({ peak }, i) => { if (peak) { if (i && shown[i - 1].peak) pen.lineTo(peak.x, peak.y); else pen.moveTo(peak.x, peak.y); } });
  stroke(pen, "rgba(31,36,48,.6)", 4.5 * thick);
  stroke(pen, "#fff", 2.2 * thick);
  for (const { peak } of shown) if (peak) disc(pen, [peak.x, peak.y], 2.4 * thick, "#fff", null, scale);
  if (!frames[f].peak) return;
  const { x, y, peak, covariance: [[a, b], [, d]] } = frames[f]; // the ellipse is the mean and the spread of the whole map
  const middle = (a + d) / 2, off = Math.hypot((a - d) / 2, b);
  pen.beginPath();
  pen.ellipse(x, y, Math.sqrt(Math.max(middle + off, 0)), Math.sqrt(Math.max(middle - off, 0)), 0.5 * Math.atan2(2 * b, a - d), 0, 2 * Math.PI);
  pen.setLineDash([5 * thick, 4 * thick]);
  stroke(pen, "#fff", 1.6 * thick);
  pen.setLineDash([]);
  disc(pen, [peak.x, peak.y], 5 * thick, "#fff", "#1f2430", scale);
}

function drawQuery(pen, trace, clip, f, scale) {
  const tubelet = clip.numbers.length / trace.tracks[0].token_frames.length;
  if (Math.floor(trace.query.frame / tubelet) !== f) return;
  const { width, height } = trace.patch_size;
  pen.beginPath();
  pen.rect(trace.visible.left + trace.query.column * width, trace.visible.top + trace.query.row * height, width, height);
  stroke(pen, "#e4003a", 3 * weight(pen) / scale);
}

function drawFlat(pen, scale) { // a note instead of a path
  const { width, height } = state.clip, tall = 13 * weight(pen) / scale, text = "near uniform";
  Object.assign(pen, { font: `${tall}px system-ui, sans-serif`, textAlign: "center", textBaseline: "bottom" });
  const wide = pen.measureText(text).width + tall;
  pen.fillStyle = "rgba(255,255,255,.8)";
  pen.fillRect((width - wide) / 2, height - 1.6 * tall, wide, 1.35 * tall);
  pen.fillStyle = "#1f2430";
  pen.fillText(text, width / 2, height - 0.35 * tall);
}

function weight(pen) { return pen.canvas.width > 300 ? 1.6 : 1; }

function stroke(pen, colour, width) {
  Object.assign(pen, { strokeStyle: colour, lineWidth: width, lineCap: "round", lineJoin: "round" });
  pen.stroke();
}

function disc(pen, [x, y], radius, fill, edge, scale) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = fill;
  pen.fill();
  if (edge) stroke(pen, edge, 1.4 / scale);
}

// ---- predictions: top-5 and timeline

async function showPrediction(id) {
  const found = await (await request(`api/prediction?${new URLSearchParams({ video: id })}`)).json();
  if (state.video !== id) return;
  state.prediction = found;
  $("predictions").replaceChildren();
  for (const one of found) {
    const box = make("div", { className: "prediction" }, $("predictions"));
    make("h3", { textContent: `${one.model}: mean of ${one.views} clip${one.views > 1 ? "s" : ""}` }, box);
    for (const { label, score } of one.top) {
      const row = make("div", { className: "score" }, box);
      make("span", { textContent: label }, row);
      make("progress", { value: score, max: 1 }, row);
      make("span", { textContent: `${(100 * score).toFixed(1)} %` }, row);
    }
    drawTimeline(box, one.timeline);
  }
}

function drawTimeline(box, timeline) {
  const width = 560, height = 150, left = 30, right = 110, low = 120, high = 12;
  const x = (time) => left + time / timeline.duration * (width - left - right);
  const y = (score) => low - score * (low - high);
  const svg = draws("svg", { class: "timeline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "scores along time" }, box);
  for (const score of [0, 0.5, 1]) {
    draws("line", { x1: left, x2: width - right, y1: y(score), y2: y(score), stroke: "#e1e5ea" }, svg);
    draws("text", { x: left - 5, y: y(score) + 4, "text-anchor": "end" }, svg).textContent = score;
  }
  for (const part of [0, 0.5, 1]) draws("text", { x: x(part * timeline.duration), y: low + 18, "text-anchor": "middle" }, svg).textContent = `${(part * timeline.duration).toFixed(1)} s`;
  const best = {};
  for (const window of timeline.windows) for (const { label, score } of window.top) best[label] = Math.max(best[label] || 0, score);
  const labels = Object.keys(best).sort((a, b) => best[b] - best[a]).slice(0, COLOURS.length);
  labels.forEach((label, i) => {
    const points = timeline.windows.map((one) => [x((one.start + one.end) / 2), y((one.top.find((entry) => entry.label === label) || { score: 0 }).score)]);
    draws("polyline", { points: points.map((point) => point.join()).join(" "), fill: "none", stroke: COLOURS[i], "stroke-width": 1.8 }, svg);
    for (const [cx, cy] of points) draws("circle", { cx, cy, r: 2.6, fill: COLOURS[i] }, svg);
    draws("rect", { x: width - right + 12, y: high + i * 18, width: 10, height: 10, rx: 2, fill: COLOURS[i] }, svg);
    draws("text", { x: width - right + 27, y: high + 9 + i * 18 }, svg).textContent = label.length > 14 ? `${label.slice(0, 13)}…` : label;
  });
  svg.onclick = (event) => {
    const box = svg.getBoundingClientRect();
    const time = ((event.clientX - box.left) / box.width * width - left) / (width - left - right) * timeline.duration;
    goTo(Math.round(Math.min(Math.max(time, 0), timeline.duration) * state.clip.fps));
  };
}

function goTo(frame) {
  const around = Math.min(Math.max(frame, 0), state.clip.frames - 1);
  attempt("reading", () => showClip(around));
}

// ---- downloads

async function download(format) {
  const name = `motionformer-${$("name").textContent.replace(/[^\w.-]+/g, "-")}`;
  if (format === "prediction") {
    if (state.prediction) save(new Blob([JSON.stringify(state.prediction, null, 1)], { type: "application/json" }), `${name}-prediction.json`);
    return;
  }
  const query = traceQuery();
  query.set("format", format);
  await attempt("drawing", async () => save(await (await request(`api/trace?${query}`)).blob(), `${name}.${format}`));
}

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// ---- helpers

function make(tag, values = {}, parent = null) {
  const element = Object.assign(document.createElement(tag), values);
  if (parent) parent.append(element);
  return element;
}

function draws(tag, values, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
  parent.append(element);
  return element;
}

function fill(select, options) {
  for (const [value, text] of options) make("option", { value, textContent: text }, select);
}

async function load(source) {
  const image = new Image();
  image.src = source;
  await image.decode();
  return image;
}

function showPosition() {
  $("position-text").textContent = `frame ${$("position").value}, ${($("position").value / state.clip.fps).toFixed(2)} s`;
}

// ---- wiring

$("file").onchange = () => { if ($("file").files[0]) upload($("file").files[0]); $("file").value = ""; };
$("drop").onkeydown = (event) => { if (event.key === "Enter") $("file").click(); };
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => { // anywhere on the page: a video dropped beside the box must not replace the page
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
  });
}
$("what").onchange = $("layer").onchange = $("head").onchange = $("label").onchange = $("scale").onchange = refresh;
$("play").onclick = () => { state.playing = !state.playing; $("play").textContent = state.playing ? "pause" : "play"; };
$("position").oninput = showPosition;
$("position").onchange = () => goTo(Number($("position").value));
for (const button of $("downloads").querySelectorAll("button")) button.onclick = () => download(button.dataset.format);
setInterval(() => { if (state.playing && state.clip) { state.step = (state.step + 1) % Math.max(...state.clip.clips.map((clip) => clip.numbers.length)); drawStages(); } }, STEP_MS);
addEventListener("pagehide", () => { fetch("api/close", { method: "POST", keepalive: true, headers: { "X-Session": state.session } }); });
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // its session was closed
attempt("opening", open);
