"use strict";
// The texts of both pages and the little that they share. Text from outside goes into the page through textContent alone.

const texts = {
  en: {
    pass: "PASS", reject: "REJECT", not_inspected: "NOT INSPECTED", running: "RUNNING", check: "CHECK",
    no_data: "NO DATA", trusted: "trusted", suspect: "suspect", fault: "fault",
    since: "since", part: "part", last_reject: "last reject", ago: "ago", by_hand: "Check by hand all parts since",
    do_pass: "Nothing to do.", do_reject: "Take this part out.", do_running: "Nothing to do.",
    do_no_data: "This page has lost its station. Do not go by it: look at the machine, call maintenance.",
    no_picture_now: "no picture", waiting: "waiting for the first picture", connecting: "connecting…",
    phase_starting: "starting", phase_warming_up: "warming up", phase_proving: "proving the known answers",
    phase_ready: "ready", phase_fault: "fault", phase_changing_over: "changing over", phase_reloading: "loading another bundle",
    product: "product", change_to: "change over to", change: "Change over", changing: "changing over…",
    changed: "inspected now:", change_confirm: "Parts are not inspected during the change. Change over to", phase_stopping: "stopping", not_ready: "not ready",
    state_waiting: "waiting", state_live: "live", state_silent: "silent", state_lost: "camera lost",
    engine: "engine", bundle: "bundle", backend: "backend", proved: "proved", uptime: "up", heartbeat: "heartbeat",
    devices: "devices", device_serving: "serves", device_standby: "stands by", device_loading: "loading", device_down: "down",
    engine_answering: "answering", engine_not_answering: "not answering", never: "never",
    per_run: "frames a run",
    memory: "memory", allocated: "in use", peak: "peak", reserved: "reserved", process: "process",
    results: "Results", rate: "results a second", age_p50: "age p50", age_p99: "age p99",
    frame: "frame", before_nms: "boxes before NMS", dropped: "frames dropped", last_frame: "last frame",
    timings: "Time of the last frame", preprocess: "preprocess", transfer: "transfer", inference: "inference",
    postprocess: "postprocess", boxes: "Boxes", none: "none", withheld: "withheld: the answer is a fault",
    totals: "Since the start", trust: "Trust", decision: "Decision", reasons: "Why", observed: "seen, not judged yet",
    soft_checks: "soft checks", soft_act: "act", soft_observe: "only observe", soft_learn: "only observe, learning: good frames",
    operator_page: "operator page", metrics: "metrics", health: "health", no_rule: "no rule", more: "more",
    reload: "new bundle", room_beside: "fits beside this one", room_gap: "stops the line while it loads", room_refused: "no room for it",
    reload_loading: "being loaded", reload_shadow: "being compared", reload_gap: "the line stands still for it", reload_probation: "on probation",
    end_swapped: "taken", end_unchanged: "the same as before", end_refused: "refused", end_does_not_fit: "refused: no room", end_rolled_back: "taken back",
    stood_still: "stood still", streams: "streams", incidents: "Incidents", no_incident: "none so far", when: "seen at", stream: "stream", repaired_by: "repaired by", after: "after",
    details: "details", lasting: "still going on", run_ended: "the run ended", over: "over by itself", not_kept: "not on disk yet",
    camera_side: "picture good again", incident: "Incident", back: "all streams", device: "device", recorded: "recorded",
    frames_word: "frames", left_out: "left out", between: "What happened", pictures: "Frames", at_fault: "fault", offset: "s after",
    boxes_after: "boxes", why: "why", ms_word: "ms", no_incident_there: "This incident is not here, or it is still being written.",
    by_class: "Boxes of this frame", no_picture_kept: "no picture was kept of this frame", raw_picture: "raw bytes of a YUV picture",
    step_retry_frame: "frame run again", step_rewarm: "warmed up again", step_new_context: "engine loaded anew",
    step_reload_bundle: "bundle read again", step_last_good_bundle: "last good bundle", step_standby_device: "standby device",
    event_self_test_passed: "self-test good", event_self_test_failed: "self-test failed", event_alarm: "alarm",
    event_step: "step", event_recovered: "recovered", event_gave_up: "run ends", event_engine: "engine", event_reload: "new bundle",
    with_nms: "after NMS", without_nms: "before NMS (dashed)",
    lost_connection: "No message for more than 2 seconds. What you see is old.",
  },
  zh: {
    pass: "合格", reject: "不合格", not_inspected: "未检测", running: "运行中", check: "请检查",
    no_data: "无数据", trusted: "可信", suspect: "可疑", fault: "故障",
    since: "开始于", part: "工件", last_reject: "上次不合格", ago: "前", by_hand: "请人工检查此时间之后的全部工件：",
    do_pass: "无需操作。", do_reject: "请取出此工件。", do_running: "无需操作。",
    do_no_data: "本页面与工位失去连接，请勿以此为准：查看设备，并通知维修。",
    no_picture_now: "无图像", waiting: "等待第一幅图像", connecting: "正在连接…",
    phase_starting: "启动中", phase_warming_up: "预热中", phase_proving: "自检中",
    phase_ready: "就绪", phase_fault: "故障", phase_changing_over: "切换产品中", phase_reloading: "正在更换模型包",
    product: "产品", change_to: "切换到", change: "切换产品", changing: "正在切换…",
    changed: "当前检测：", change_confirm: "切换期间的工件不检测。切换到", phase_stopping: "停止中", not_ready: "未就绪",
    state_waiting: "等待", state_live: "实时", state_silent: "无更新", state_lost: "相机丢失",
    per_run: "每次推理帧数", engine: "推理引擎", bundle: "模型包", backend: "后端", proved: "自检通过", uptime: "运行时间", heartbeat: "心跳",
    devices: "设备", device_serving: "工作中", device_standby: "热备", device_loading: "加载中", device_down: "不可用",
    engine_answering: "正常", engine_not_answering: "无响应", never: "从未",
    memory: "内存", allocated: "已用", peak: "峰值", reserved: "预留", process: "进程",
    results: "结果", rate: "每秒结果数", age_p50: "延迟 p50", age_p99: "延迟 p99",
    frame: "帧号", before_nms: "NMS 前框数", dropped: "丢帧", last_frame: "最近一帧",
    timings: "上一帧耗时", preprocess: "预处理", transfer: "传输", inference: "推理",
    postprocess: "后处理", boxes: "检测框", none: "无", withheld: "结果为故障，不予显示",
    totals: "启动以来", trust: "可信度", decision: "判定", reasons: "原因", observed: "已观察，暂不判定",
    soft_checks: "软检查", soft_act: "生效", soft_observe: "仅观察", soft_learn: "仅观察，学习中：合格帧",
    operator_page: "操作员页面", metrics: "指标", health: "健康状态", no_rule: "无规则", more: "更多",
    reload: "新模型包", room_beside: "可并行加载", room_gap: "加载时停止检测", room_refused: "内存不足",
    reload_loading: "加载中", reload_shadow: "对比中", reload_gap: "停止检测并加载", reload_probation: "试运行",
    end_swapped: "已启用", end_unchanged: "与当前相同", end_refused: "已拒绝", end_does_not_fit: "已拒绝：内存不足", end_rolled_back: "已回退",
    stood_still: "停止检测", streams: "视频流", incidents: "事件", no_incident: "暂无", when: "发生于", stream: "视频流", repaired_by: "修复方式", after: "恢复用时",
    details: "详情", lasting: "仍在持续", run_ended: "运行已结束", over: "自行恢复", not_kept: "尚未保存",
    camera_side: "图像恢复正常", incident: "事件", back: "全部视频流", device: "设备", recorded: "已记录",
    frames_word: "帧", left_out: "缺失", between: "经过", pictures: "各帧", at_fault: "故障帧", offset: "秒",
    boxes_after: "检测框", why: "原因", ms_word: "毫秒", no_incident_there: "此事件不存在，或仍在写入。",
    by_class: "本帧检测框", no_picture_kept: "此帧未保存图像", raw_picture: "YUV 图像的原始字节",
    step_retry_frame: "重跑该帧", step_rewarm: "重新预热", step_new_context: "重新加载引擎",
    step_reload_bundle: "重新读取模型包", step_last_good_bundle: "上一个可用模型包", step_standby_device: "备用设备",
    event_self_test_passed: "自检通过", event_self_test_failed: "自检失败", event_alarm: "报警",
    event_step: "步骤", event_recovered: "已恢复", event_gave_up: "运行结束", event_engine: "引擎", event_reload: "更换模型包",
    with_nms: "NMS 之后", without_nms: "NMS 之前（虚线）",
    lost_connection: "超过 2 秒没有消息，当前显示的内容已过期。",
  },
};

// What stands in the way: [what is the matter, what to do now]. Those of the guard's checks come from /causes.js.
const causes = {
  en: {
    reloading: ["Another detector is being loaded in place of the running one.", "Set parts aside until it is ready."],
    starting: ["Starting: the self-test is running.", "Please wait."],
    stopping: ["The inspection is being shut down.", "Set parts aside."],
    engine_stuck: ["The inspection does not answer.", "Set parts aside and call maintenance."],
    camera_lost: ["The camera is lost.", "Check its cable and power. Set parts aside."],
    silent: ["No new pictures.", "Check camera and belt. Set parts aside."],
    no_part: ["No part yet.", "Waiting for the first part."],
    self_test: ["The self-test gave a wrong answer.", "Results since the last good one are unproven."],
    slow: ["The detector was too slow.", "Wait; it is loaded anew by itself."],
    device_lost: ["The computing device is lost.", "The standby takes over, or the program starts again."],
    answer: ["The detector failed.", "Wait for the self-test."],
    asked: ["A log that was asked for.", ""],
  },
  zh: {
    reloading: ["正在加载新的模型包，其间停止检测。", "请将工件另放，等待就绪。"],
    starting: ["正在启动：自检中。", "请稍候。"],
    stopping: ["检测正在停止。", "请将工件另放。"],
    engine_stuck: ["检测程序无响应。", "请将工件另放，并通知维修。"],
    camera_lost: ["相机丢失。", "检查相机线缆和电源，将工件另放。"],
    silent: ["没有新的图像。", "检查相机和传送带，将工件另放。"],
    no_part: ["尚无工件。", "等待第一个工件。"],
    self_test: ["自检结果错误。", "上次自检通过之后的结果未经验证。"],
    slow: ["检测器响应过慢。", "请等待，程序会自动重新加载。"],
    device_lost: ["计算设备丢失。", "将切换到备用设备或重新启动。"],
    answer: ["检测器出错。", "请等待自检。"],
    asked: ["按请求记录的日志。", ""],
  },
};

const wanted = new URLSearchParams(location.search).get("lang");
const asked = wanted || navigator.language || "en";
const language = asked.toLowerCase().startsWith("zh") ? "zh" : "en";
document.documentElement.lang = language === "zh" ? "zh-CN" : "en";

function text(key) {
  return texts[language][key] || key;
}

function cause(key) {
  return causes[language][key] || guardCauses[language][key] || [key, ""];
}

/** An element with a class, a text and children. */
function make(tag, name, content, children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (content !== undefined && content !== null) element.textContent = content;
  for (const child of children || []) element.append(child);
  return element;
}

/** Sets a text only when it differs, so that nothing flickers and selections stay. */
function say(element, content) {
  const wanted = content === undefined || content === null ? "" : String(content);
  if (element.textContent !== wanted) element.textContent = wanted;
}

function clock(milliseconds) {
  return new Date(milliseconds).toLocaleTimeString(language === "zh" ? "zh-CN" : "en-GB");
}

function duration(seconds) {
  const [s, min, h, d] = language === "zh" ? [" 秒", " 分", " 小时", " 天"] : [" s", " min", " h", " d"];
  if (seconds < 60) return Math.floor(seconds) + s;
  if (seconds < 3600) return Math.floor(seconds / 60) + min;
  if (seconds < 86400) return Math.floor(seconds / 3600) + h + " " + Math.floor((seconds % 3600) / 60) + min;
  return Math.floor(seconds / 86400) + d + " " + Math.floor((seconds % 86400) / 3600) + h;
}

/** The words for how an incident ended: the step that repaired it, or why there is none. */
function repair(incident) {
  const step = incident.steps[incident.steps.length - 1];
  if (incident.recovered_after_ms === null) return text(incident.ended ? "run_ended" : "lasting");
  return step ? text("step_" + step) : text("over");
}

/** Seconds with two places, longer times as everywhere else. */
function lasted(milliseconds) {
  if (milliseconds === null) return "–";
  return milliseconds < 60000 ? (milliseconds / 1000).toFixed(2) + (language === "zh" ? " 秒" : " s") : duration(milliseconds / 1000);
}

function bytes(count) {
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (count >= size) return (count / size).toFixed(1) + " " + unit;
  }
  return count + " B";
}

/**
 * Calls `show(snapshot)` for every message, and `silent(true)` by this page's own clock once the last message is 2 seconds
 * old: a page must never go on showing what it no longer knows.
 */
function listen(show, silent) {
  let last = performance.now();
  let isSilent = false;
  const tell = (now) => {
    if (now !== isSilent) silent((isSilent = now));
  };
  setInterval(() => tell(performance.now() - last > 2000), 200);
  const open = () => {
    const source = new EventSource("/events");
    source.onmessage = (message) => {
      const snapshot = JSON.parse(message.data);
      last = performance.now();
      show(snapshot);
      tell(false);
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
  };
  open();
}

/** Keeps an <img> at the present picture of a stream, a few times a second while somebody looks; hides it when there is none. */
class Picture {
  constructor(image, name) {
    this.image = image;
    this.address = "/preview/" + encodeURIComponent(name) + ".jpg";
    this.wanted = false;
    this.busy = false;
    this.next = 0;
    image.hidden = true;
    image.alt = "";
  }

  async show(wanted) {
    this.wanted = wanted;
    if (!wanted) this.clear();
    if (!wanted || this.busy || document.hidden || performance.now() < this.next) return;
    this.busy = true;
    this.next = performance.now() + 180;
    try {
      const answer = await fetch(this.address, { signal: AbortSignal.timeout(1500) });
      const blob = answer.ok ? await answer.blob() : null;
      if (blob && this.wanted) this.put(URL.createObjectURL(blob));
      else this.clear();
    } catch {
      this.clear();
    }
    this.busy = false;
  }

  put(address) {
    const old = this.image.src;
    this.image.src = address;
    this.image.hidden = false;
    if (old.startsWith("blob:")) URL.revokeObjectURL(old);
  }

  clear() {
    if (this.image.hidden) return;
    const old = this.image.src;
    this.image.hidden = true;
    this.image.removeAttribute("src");
    if (old.startsWith("blob:")) URL.revokeObjectURL(old);
  }
}
