/* A UVC camera that does not exist: preloaded into a program, it answers open, ioctl, mmap, munmap, poll and close for one
 * made-up /dev/videoN as the kernel's uvcvideo driver does, and passes everything else on. Made for tests alone.
 *
 * Frames come by the clock at the rate set, into the buffers that are queued at that moment; a frame without a queued
 * buffer is lost and leaves a gap in the sequence. What happens to the camera is said by environment variables:
 *
 *   FAKE_V4L2_NODE         the node (default /dev/video0); links to it are followed
 *   FAKE_V4L2_FORMATS      of MJPG,YUYV,UYVY,NV12,GREY,RGGB (default MJPG,YUYV)
 *   FAKE_V4L2_JPEGS        folder with WxH_0.jpg, WxH_1.jpg, ... for MJPG
 *   FAKE_V4L2_CAPS         capability word, hexadecimal
 *   FAKE_V4L2_CARD         name of the camera; FAKE_V4L2_BACK_CARD after it came back
 *   FAKE_V4L2_OPEN_ERRNO   error number of open
 *   FAKE_V4L2_START_ERRNO  error number of STREAMON (28 is ENOSPC), for uncompressed formats alone
 *   FAKE_V4L2_UNPLUG_AT    the camera goes away after this many frames ...
 *   FAKE_V4L2_BACK_NODE    ... and comes back as this node
 *   FAKE_V4L2_BACK_MS      ... after this many milliseconds
 *   FAKE_V4L2_LINK         ... and this link is pointed to it, as udev does
 *   FAKE_V4L2_ERROR_EVERY  every n-th frame carries the error flag
 *   FAKE_V4L2_SHORT_EVERY  every n-th frame is cut in half
 *   FAKE_V4L2_GAP_AT       three frames are lost before this one
 *   FAKE_V4L2_SILENT_FROM  no more frames from this one on
 *   FAKE_V4L2_FROZEN_FROM  the same picture from this frame on
 *   FAKE_V4L2_FORGETS      the camera does not keep the gain that is set
 *   FAKE_V4L2_LOG          file that gets a line a call that matters
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/videodev2.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_BUFFERS 8
#define NONE UINT32_MAX

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	int descriptor; /* 0: closed */
	uint32_t width, height, format, rate;
	uint32_t buffers, length;
	uint8_t *memory;
	uint32_t queued[MOST_BUFFERS], queued_count;
	struct v4l2_buffer done[MOST_BUFFERS];
	uint32_t done_count;
	int streaming, mapped;
	double started_s;
	uint32_t frame; /* next frame of this stream */
	int unplugged;
	double unplugged_s;
	int32_t controls[16];
} camera = { .width = 640, .height = 480, .format = V4L2_PIX_FMT_YUYV, .rate = 30 };

static const struct { uint32_t id; const char *name; int32_t least, most, step, usual; } CONTROLS[] = {
	{ V4L2_CID_BRIGHTNESS, "Brightness", -64, 64, 1, 0 },
	{ V4L2_CID_GAIN, "Gain", 0, 100, 1, 0 },
	{ V4L2_CID_AUTO_WHITE_BALANCE, "White Balance, Automatic", 0, 1, 1, 1 },
	{ V4L2_CID_WHITE_BALANCE_TEMPERATURE, "White Balance Temperature", 2800, 6500, 10, 4600 },
	{ V4L2_CID_POWER_LINE_FREQUENCY, "Power Line Frequency", 0, 2, 1, 1 },
	{ V4L2_CID_EXPOSURE_AUTO, "Auto Exposure", 0, 3, 1, V4L2_EXPOSURE_APERTURE_PRIORITY },
	{ V4L2_CID_EXPOSURE_ABSOLUTE, "Exposure Time, Absolute", 1, 5000, 1, 157 },
};
#define CONTROL_COUNT (sizeof CONTROLS / sizeof CONTROLS[0])

static long setting(const char *name, long otherwise)
{
	const char *text = getenv(name);
	return text && *text ? strtol(text, NULL, 0) : otherwise;
}

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static void note(const char *format, ...)
{
	const char *path = getenv("FAKE_V4L2_LOG");
	if (!path)
		return;
	FILE *file = fopen(path, "a");
	if (!file)
		return;
	va_list arguments;
	va_start(arguments, format);
	vfprintf(file, format, arguments);
	va_end(arguments);
	fputc('\n', file);
	fclose(file);
}

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

/* --- plugging --- */

static void reset_controls(void)
{
	for (size_t i = 0; i < CONTROL_COUNT; i++)
		camera.controls[i] = CONTROLS[i].usual;
}

static void unplug(void)
{
	if (camera.unplugged)
		return;
	camera.unplugged = 1;
	camera.unplugged_s = now_s();
	note("unplug");
}

/* The node that answers now, or NULL while the camera is unplugged. */
static const char *present_node(void)
{
	const char *node = getenv("FAKE_V4L2_NODE");
	if (!camera.unplugged)
		return node ? node : "/dev/video0";
	const char *back = getenv("FAKE_V4L2_BACK_NODE");
	if (!back || now_s() < camera.unplugged_s + setting("FAKE_V4L2_BACK_MS", 0) * 1e-3)
		return NULL;
	const char *link = getenv("FAKE_V4L2_LINK");
	if (link && camera.unplugged == 1) {
		char aside[PATH_MAX];
		snprintf(aside, sizeof aside, "%s.aside", link);
		if (symlink(back, aside) == 0)
			rename(aside, link);
	}
	camera.unplugged = 2;
	return back;
}

static int is_ours(const char *path, const char *node)
{
	char target[PATH_MAX];
	if (!node)
		return 0;
	if (strcmp(path, node) == 0)
		return 1;
	ssize_t length = readlink(path, target, sizeof target - 1);
	if (length < 0)
		return 0;
	target[length] = 0;
	return strcmp(target, node) == 0;
}

static int open_camera(const char *path, int *answered)
{
	*answered = 0;
	pthread_mutex_lock(&lock);
	const char *node = present_node();
	const char *first = getenv("FAKE_V4L2_NODE");
	int result = -1;
	if (is_ours(path, node)) {
		*answered = 1;
		int wanted_errno = setting("FAKE_V4L2_OPEN_ERRNO", 0);
		if (wanted_errno || camera.descriptor) {
			errno = wanted_errno ? wanted_errno : EBUSY;
		} else {
			result = memfd_create("fake-v4l2", MFD_CLOEXEC);
			camera.descriptor = result;
			camera.streaming = camera.buffers = camera.queued_count = camera.done_count = 0;
			reset_controls();
			note("open %s", path);
		}
	} else if (is_ours(path, first ? first : "/dev/video0")) {
		*answered = 1;
		errno = ENOENT;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* --- frames --- */

static uint32_t image_bytes(void)
{
	uint32_t pixels = camera.width * camera.height;
	switch (camera.format) {
	case V4L2_PIX_FMT_GREY: return pixels;
	case V4L2_PIX_FMT_NV12: return pixels * 3 / 2;
	default: return pixels * 2;
	}
}

static uint32_t jpeg_into(uint8_t *buffer, uint32_t room, uint32_t number)
{
	char path[PATH_MAX];
	for (int attempt = 0; attempt < 2; attempt++) {
		snprintf(path, sizeof path, "%s/%ux%u_%u.jpg", getenv("FAKE_V4L2_JPEGS"), camera.width, camera.height,
			 attempt ? 0 : number % 4);
		FILE *file = fopen(path, "rb");
		if (!file)
			continue;
		uint32_t used = fread(buffer, 1, room, file);
		fclose(file);
		return used;
	}
	return 0;
}

/* A ramp whose first luma sample counts frames; chroma is neutral but for U of the first pair. */
static uint32_t picture_into(uint8_t *buffer, uint32_t room, uint32_t number)
{
	if (camera.format == V4L2_PIX_FMT_MJPEG)
		return jpeg_into(buffer, room, number);
	uint32_t pixels = camera.width * camera.height, used = image_bytes();
	memset(buffer, 128, used);
	uint32_t step = used == pixels * 2 ? 2 : 1, first = camera.format == V4L2_PIX_FMT_UYVY ? 1 : 0;
	for (uint32_t i = 0; i < pixels; i++)
		buffer[first + i * step] = (i + number) & 0xff;
	return used;
}

static void deliver(uint32_t number)
{
	if (camera.queued_count == 0)
		return; /* lost: the reader was too slow */
	uint32_t index = camera.queued[0];
	memmove(camera.queued, camera.queued + 1, --camera.queued_count * sizeof(uint32_t));
	long frozen_from = setting("FAKE_V4L2_FROZEN_FROM", -1);
	uint32_t shown = frozen_from >= 0 && number > (uint32_t)frozen_from ? (uint32_t)frozen_from : number;
	struct v4l2_buffer buffer = { .index = index, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .memory = V4L2_MEMORY_MMAP };
	buffer.bytesused = picture_into(camera.memory + (size_t)index * camera.length, camera.length, shown);
	buffer.length = camera.length;
	buffer.m.offset = index * camera.length;
	buffer.sequence = number;
	buffer.flags = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC | V4L2_BUF_FLAG_MAPPED | V4L2_BUF_FLAG_DONE;
	double stamp = now_s();
	buffer.timestamp.tv_sec = (time_t)stamp;
	buffer.timestamp.tv_usec = (suseconds_t)((stamp - (double)buffer.timestamp.tv_sec) * 1e6);
	long every = setting("FAKE_V4L2_ERROR_EVERY", 0);
	if (every && number % every == (uint32_t)every - 1)
		buffer.flags |= V4L2_BUF_FLAG_ERROR;
	every = setting("FAKE_V4L2_SHORT_EVERY", 0);
	if (every && number % every == (uint32_t)every - 1)
		buffer.bytesused /= 2;
	camera.done[camera.done_count++] = buffer;
}

/* Lets the camera deliver what is due by now. */
static void advance(void)
{
	long silent_from = setting("FAKE_V4L2_SILENT_FROM", -1), unplug_at = setting("FAKE_V4L2_UNPLUG_AT", -1);
	while (camera.streaming && !(camera.unplugged == 1)) {
		if (silent_from >= 0 && camera.frame >= (uint32_t)silent_from)
			return;
		if (unplug_at >= 0 && !camera.unplugged && camera.frame >= (uint32_t)unplug_at) {
			unplug();
			return;
		}
		if (now_s() < camera.started_s + (camera.frame + 1) / (double)camera.rate)
			return;
		if (setting("FAKE_V4L2_GAP_AT", -1) == (long)camera.frame && camera.frame)
			camera.frame += 3;
		deliver(camera.frame++);
	}
}

/* --- calls --- */

static int fail(int number)
{
	errno = number;
	return -1;
}

static int offered(uint32_t index, uint32_t *format)
{
	const char *list = getenv("FAKE_V4L2_FORMATS");
	if (!list)
		list = "MJPG,YUYV";
	for (; *list; list += strcspn(list, ","), list += *list == ',')
		if (index-- == 0) {
			*format = v4l2_fourcc(list[0], list[1], list[2], list[3]);
			return 1;
		}
	return 0;
}

static int is_offered(uint32_t wanted)
{
	uint32_t format;
	for (uint32_t i = 0; offered(i, &format); i++)
		if (format == wanted)
			return 1;
	return 0;
}

static const uint32_t SIZES[][2] = { { 640, 480 }, { 320, 240 }, { 1280, 720 } };

/* Uncompressed pictures above 640x480 come at 10 frames/s, as over USB 2. */
static uint32_t most_rate(uint32_t format, uint32_t width)
{
	return format == V4L2_PIX_FMT_MJPEG || width <= 640 ? 60 : 10;
}

static int query_capability(struct v4l2_capability *out)
{
	memset(out, 0, sizeof *out);
	const char *card = getenv("FAKE_V4L2_CARD"), *back = getenv("FAKE_V4L2_BACK_CARD");
	if (camera.unplugged && back)
		card = back;
	strcpy((char *)out->driver, "uvcvideo");
	snprintf((char *)out->card, sizeof out->card, "%s", card ? card : "Fake Camera");
	strcpy((char *)out->bus_info, "usb-0000:00:14.0-1");
	out->version = 0x050f00;
	out->device_caps = setting("FAKE_V4L2_CAPS", V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING | V4L2_CAP_EXT_PIX_FORMAT);
	out->capabilities = out->device_caps | V4L2_CAP_DEVICE_CAPS | V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_META_CAPTURE;
	return 0;
}

static void fill_format(struct v4l2_format *out)
{
	struct v4l2_pix_format *pix = &out->fmt.pix;
	pix->width = camera.width;
	pix->height = camera.height;
	pix->pixelformat = camera.format;
	pix->field = V4L2_FIELD_NONE;
	int packed = camera.format == V4L2_PIX_FMT_YUYV || camera.format == V4L2_PIX_FMT_UYVY;
	pix->bytesperline = camera.format == V4L2_PIX_FMT_MJPEG ? 0 : camera.width * (packed ? 2 : 1);
	pix->sizeimage = image_bytes();
}

/* As uvcvideo: takes the nearest size and the first format where it lacks what is asked for. */
static int set_format(struct v4l2_format *in, int try_only)
{
	uint32_t width = camera.width, height = camera.height, format = camera.format, best = NONE;
	if (camera.buffers && !try_only)
		return fail(EBUSY);
	if (!is_offered(in->fmt.pix.pixelformat))
		offered(0, &in->fmt.pix.pixelformat);
	for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
		uint32_t distance = abs((int)SIZES[i][0] - (int)in->fmt.pix.width);
		if (distance < best) {
			best = distance;
			camera.width = SIZES[i][0];
			camera.height = SIZES[i][1];
		}
	}
	camera.format = in->fmt.pix.pixelformat;
	fill_format(in);
	if (try_only) {
		camera.width = width;
		camera.height = height;
		camera.format = format;
	} else {
		uint32_t most = most_rate(camera.format, camera.width);
		camera.rate = camera.rate > most ? most : camera.rate;
		note("s_fmt %ux%u %.4s", camera.width, camera.height, (char *)&camera.format);
	}
	return 0;
}

static int enumerate_sizes(struct v4l2_frmsizeenum *item)
{
	if (item->index >= sizeof SIZES / sizeof SIZES[0] || !is_offered(item->pixel_format))
		return fail(EINVAL);
	item->type = V4L2_FRMSIZE_TYPE_DISCRETE;
	item->discrete.width = SIZES[item->index][0];
	item->discrete.height = SIZES[item->index][1];
	return 0;
}

static int enumerate_rates(struct v4l2_frmivalenum *item)
{
	static const uint32_t RATES[] = { 60, 30, 15, 10, 5 };
	uint32_t most = most_rate(item->pixel_format, item->width), first = 0;
	while (RATES[first] > most)
		first++;
	if (item->index + first >= sizeof RATES / sizeof RATES[0])
		return fail(EINVAL);
	item->type = V4L2_FRMIVAL_TYPE_DISCRETE;
	item->discrete.numerator = 1;
	item->discrete.denominator = RATES[item->index + first];
	return 0;
}

static int parameters(struct v4l2_streamparm *item, int set)
{
	struct v4l2_fract *interval = &item->parm.capture.timeperframe;
	if (set && interval->numerator) {
		uint32_t rate = interval->denominator / interval->numerator, most = most_rate(camera.format, camera.width);
		camera.rate = rate < 1 ? 1 : rate > most ? most : rate;
		note("s_parm %u", camera.rate);
	}
	item->parm.capture.capability = V4L2_CAP_TIMEPERFRAME;
	interval->numerator = 1;
	interval->denominator = camera.rate;
	return 0;
}

static int find_control(uint32_t id)
{
	for (size_t i = 0; i < CONTROL_COUNT; i++)
		if (CONTROLS[i].id == id)
			return (int)i;
	return -1;
}

static int query_control(struct v4l2_queryctrl *item)
{
	int i = find_control(item->id);
	if (i < 0)
		return fail(EINVAL);
	snprintf((char *)item->name, sizeof item->name, "%s", CONTROLS[i].name);
	item->type = V4L2_CTRL_TYPE_INTEGER;
	item->minimum = CONTROLS[i].least;
	item->maximum = CONTROLS[i].most;
	item->step = CONTROLS[i].step;
	item->default_value = CONTROLS[i].usual;
	item->flags = 0;
	return 0;
}

static int32_t *control_value(uint32_t id)
{
	int i = find_control(id);
	return i < 0 ? NULL : &camera.controls[i];
}

static int set_control(uint32_t id, int32_t value)
{
	int i = find_control(id);
	if (i < 0)
		return fail(EINVAL);
	if (value < CONTROLS[i].least || value > CONTROLS[i].most)
		return fail(ERANGE);
	/* A value that the camera steers itself cannot be set: newer kernels refuse it. */
	if (id == V4L2_CID_EXPOSURE_ABSOLUTE && *control_value(V4L2_CID_EXPOSURE_AUTO) != V4L2_EXPOSURE_MANUAL)
		return fail(EACCES);
	if (id == V4L2_CID_WHITE_BALANCE_TEMPERATURE && *control_value(V4L2_CID_AUTO_WHITE_BALANCE))
		return fail(EACCES);
	if (id == V4L2_CID_EXPOSURE_AUTO && value != V4L2_EXPOSURE_MANUAL && value != V4L2_EXPOSURE_APERTURE_PRIORITY)
		return fail(EINVAL);
	if (!(id == V4L2_CID_GAIN && setting("FAKE_V4L2_FORGETS", 0)))
		camera.controls[i] = value - value % CONTROLS[i].step;
	note("s_ctrl %x %d", id, value);
	return 0;
}

static int extended_controls(struct v4l2_ext_controls *list, int set)
{
	for (uint32_t i = 0; i < list->count; i++) {
		int32_t *value = control_value(list->controls[i].id);
		list->error_idx = i;
		if (!value)
			return fail(EINVAL);
		if (!set)
			list->controls[i].value = *value;
		else if (set_control(list->controls[i].id, list->controls[i].value))
			return -1;
	}
	return 0;
}

static int request_buffers(struct v4l2_requestbuffers *item)
{
	if (item->memory != V4L2_MEMORY_MMAP)
		return fail(EINVAL);
	if (camera.streaming || camera.mapped)
		return fail(EBUSY);
	if (camera.memory)
		REAL("munmap", int (*)(void *, size_t))(camera.memory, (size_t)camera.buffers * camera.length);
	camera.memory = NULL;
	camera.buffers = item->count > MOST_BUFFERS ? MOST_BUFFERS : item->count;
	camera.length = (image_bytes() + 4095) & ~4095u;
	camera.queued_count = camera.done_count = 0;
	item->count = camera.buffers;
	if (!camera.buffers)
		return 0;
	size_t whole = (size_t)camera.buffers * camera.length;
	if (ftruncate(camera.descriptor, whole))
		return -1;
	camera.memory = REAL("mmap", void *(*)(void *, size_t, int, int, int, off_t))(
		NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, camera.descriptor, 0);
	return camera.memory == MAP_FAILED ? fail(ENOMEM) : 0;
}

static int query_buffer(struct v4l2_buffer *item)
{
	if (item->index >= camera.buffers)
		return fail(EINVAL);
	item->length = camera.length;
	item->m.offset = item->index * camera.length;
	item->flags = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
	return 0;
}

static int queue_buffer(struct v4l2_buffer *item)
{
	if (item->index >= camera.buffers || camera.queued_count >= camera.buffers)
		return fail(EINVAL);
	for (uint32_t i = 0; i < camera.queued_count; i++)
		if (camera.queued[i] == item->index)
			return fail(EINVAL);
	camera.queued[camera.queued_count++] = item->index;
	return 0;
}

static int dequeue_buffer(struct v4l2_buffer *item)
{
	if (!camera.streaming)
		return fail(EINVAL);
	if (!camera.done_count)
		return fail(EAGAIN);
	*item = camera.done[0];
	memmove(camera.done, camera.done + 1, --camera.done_count * sizeof camera.done[0]);
	return 0;
}

static int stream_on(void)
{
	int wanted_errno = setting("FAKE_V4L2_START_ERRNO", 0);
	if (wanted_errno && camera.format != V4L2_PIX_FMT_MJPEG)
		return fail(wanted_errno);
	if (!camera.queued_count)
		return fail(EINVAL);
	camera.streaming = 1;
	camera.frame = 0;
	camera.started_s = now_s();
	note("streamon");
	return 0;
}

static int stream_off(void)
{
	camera.streaming = 0;
	camera.queued_count = camera.done_count = 0;
	note("streamoff");
	return 0;
}

static int answer(unsigned long request, void *argument)
{
	advance();
	if (camera.unplugged == 1)
		return fail(ENODEV);
	switch ((uint32_t)request) {
	case (uint32_t)VIDIOC_QUERYCAP: return query_capability(argument);
	case (uint32_t)VIDIOC_ENUM_FMT: {
		struct v4l2_fmtdesc *item = argument;
		return offered(item->index, &item->pixelformat) ? 0 : fail(EINVAL);
	}
	case (uint32_t)VIDIOC_G_FMT: fill_format(argument); return 0;
	case (uint32_t)VIDIOC_S_FMT: return set_format(argument, 0);
	case (uint32_t)VIDIOC_TRY_FMT: return set_format(argument, 1);
	case (uint32_t)VIDIOC_ENUM_FRAMESIZES: return enumerate_sizes(argument);
	case (uint32_t)VIDIOC_ENUM_FRAMEINTERVALS: return enumerate_rates(argument);
	case (uint32_t)VIDIOC_G_PARM: return parameters(argument, 0);
	case (uint32_t)VIDIOC_S_PARM: return parameters(argument, 1);
	case (uint32_t)VIDIOC_QUERYCTRL: return query_control(argument);
	case (uint32_t)VIDIOC_G_CTRL: {
		struct v4l2_control *item = argument;
		int32_t *value = control_value(item->id);
		return value ? (item->value = *value, 0) : fail(EINVAL);
	}
	case (uint32_t)VIDIOC_S_CTRL: {
		struct v4l2_control *item = argument;
		return set_control(item->id, item->value);
	}
	case (uint32_t)VIDIOC_G_EXT_CTRLS: return extended_controls(argument, 0);
	case (uint32_t)VIDIOC_S_EXT_CTRLS: return extended_controls(argument, 1);
	case (uint32_t)VIDIOC_REQBUFS: return request_buffers(argument);
	case (uint32_t)VIDIOC_QUERYBUF: return query_buffer(argument);
	case (uint32_t)VIDIOC_QBUF: return queue_buffer(argument);
	case (uint32_t)VIDIOC_DQBUF: return dequeue_buffer(argument);
	case (uint32_t)VIDIOC_STREAMON: return stream_on();
	case (uint32_t)VIDIOC_STREAMOFF: return stream_off();
	default: return fail(ENOTTY);
	}
}

/* --- what programs call --- */

static int opened(const char *name, const char *path, int flags, mode_t mode)
{
	int answered, result = open_camera(path, &answered);
	return answered ? result : REAL(name, int (*)(const char *, int, ...))(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list arguments;
	va_start(arguments, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list arguments;
	va_start(arguments, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return opened("open64", path, flags, mode);
}

int ioctl(int descriptor, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	if (!descriptor || descriptor != camera.descriptor)
		return REAL("ioctl", int (*)(int, unsigned long, ...))(descriptor, request, argument);
	pthread_mutex_lock(&lock);
	int result = answer(request, argument), kept = errno;
	pthread_mutex_unlock(&lock);
	errno = kept;
	return result;
}

static void *mapped(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
	if (descriptor > 0 && descriptor == camera.descriptor) {
		camera.mapped++;
		note("mmap");
	}
	return REAL("mmap", void *(*)(void *, size_t, int, int, int, off_t))(
		address, length, protection, flags, descriptor, offset);
}

void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
	return mapped(address, length, protection, flags, descriptor, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
	return mapped(address, length, protection, flags, descriptor, offset);
}

int munmap(void *address, size_t length)
{
	if (camera.mapped > 0 && camera.length && length == camera.length) {
		camera.mapped--;
		note("munmap");
	}
	return REAL("munmap", int (*)(void *, size_t))(address, length);
}

int poll(struct pollfd *watched, nfds_t count, int patience_ms)
{
	if (count != 1 || !camera.descriptor || watched[0].fd != camera.descriptor)
		return REAL("poll", int (*)(struct pollfd *, nfds_t, int))(watched, count, patience_ms);
	double until_s = now_s() + patience_ms * 1e-3;
	for (;;) {
		pthread_mutex_lock(&lock);
		advance();
		int gone = camera.unplugged == 1, ready = camera.done_count > 0;
		pthread_mutex_unlock(&lock);
		watched[0].revents = gone ? POLLERR | POLLHUP : ready ? POLLIN : 0;
		if (gone || ready)
			return 1;
		if (patience_ms >= 0 && now_s() >= until_s)
			return 0;
		nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
	}
}

int close(int descriptor)
{
	if (descriptor > 0 && descriptor == camera.descriptor) {
		pthread_mutex_lock(&lock);
		note("close with %d mapped", camera.mapped);
		if (camera.memory)
			REAL("munmap", int (*)(void *, size_t))(camera.memory, (size_t)camera.buffers * camera.length);
		camera.memory = NULL;
		camera.descriptor = camera.streaming = camera.buffers = 0;
		pthread_mutex_unlock(&lock);
	}
	return REAL("close", int (*)(int))(descriptor);
}
