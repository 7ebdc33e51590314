/* A stand-in for libnvidia-ml.so.1: two RTX 3090, in a state that a test changes while a process uses them.
 *
 * FAKENVML_STATE names a text file that is read again at every call; a later line wins. <i> is a card's index,
 * <f> the name of an NVML function.
 *   count=2  driver=580.95.05  cuda=13000
 *   init_error=18             what nvmlInit answers
 *   <i>.<key>=<value>         MiB: total used reserved; percent: util memutil fan; temp (°C); mW: power
 *                             powerlimit; MHz: smclock memclock; throttle (bits); pciegen pciewidth
 *                             pciegenmax pciewidthmax; KiB/s: pcierx pcietx; name uuid
 *                             eccon=1 makes errors of memory counted: ecc corrected, uecc uncorrected since the
 *                             driver was loaded, eccever ueccever since the card was made
 *   <i>.rows=1,0,1,0          rows out of use: corrected, uncorrected, pending, failed
 *   <i>.xid=79@3              an error that is told once to each process; another number after @ tells it again
 *   <i>.proc.<pid>=<MiB>      a process that computes; <i>.gfx.<pid>=<MiB> one that draws
 *   <i>.error=15              what every function answers for that card
 *   <i>.error.<f>=3           what one function answers for that card; error.<f>=3 for all
 *   <i>.hang.<f>=30           seconds that one function takes for that card; hang.<f>=30 for all
 * Valid C and C++.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int Result;
typedef void *Device;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, VERSION_MISMATCH = 25
};
enum { CARDS = 8, TEXT = 128, MEMORY_V2 = 0x02000028, TEMPERATURE_V1 = 0x0100000C };

#ifdef __cplusplus
#define API extern "C" __attribute__((visibility("default")))
#else
#define API __attribute__((visibility("default")))
#endif

static int references;

/* Copies the value of a key; returns whether the state has it. */
static int look(const char *key, char *value) {
    const char *path = getenv("FAKENVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t length = strlen(key);
    char line[256];
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != '=') continue;
        snprintf(value, TEXT, "%.*s", TEXT - 1, line + length + 1);
        value[strcspn(value, "\r\n")] = 0;
        found = 1;
    }
    fclose(file);
    return found;
}

static u64 number(const char *key, u64 otherwise) {
    char value[TEXT];
    return look(key, value) ? strtoull(value, NULL, 0) : otherwise;
}

static u32 index_of(Device device) { return (u32)((size_t)device - 1); }

static u64 card_number(Device device, const char *key, u64 otherwise) {
    char full[TEXT];
    snprintf(full, sizeof full, "%u.%s", index_of(device), key);
    return number(full, otherwise);
}

static u64 bytes(Device device, const char *key, u64 otherwise) {
    return card_number(device, key, otherwise) << 20;
}

static u32 cards(void) {
    u64 count = number("count", 2);
    return count > CARDS ? (u32)CARDS : (u32)count;
}

static Result put_text(const char *value, char *out, u32 size) {
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

static Result put_card_text(Device device, const char *key, const char *otherwise, char *out, u32 size) {
    char full[TEXT], value[TEXT];
    snprintf(full, sizeof full, "%u.%s", index_of(device), key);
    return put_text(look(full, value) ? value : otherwise, out, size);
}

/* Hangs and fails as the state wants. */
static Result begin(const char *function) {
    char key[TEXT];
    snprintf(key, sizeof key, "hang.%s", function);
    sleep((u32)number(key, 0));
    if (!references) return UNINITIALIZED;
    snprintf(key, sizeof key, "error.%s", function);
    return (Result)number(key, SUCCESS);
}

static Result begin_card(Device device, const char *function) {
    char key[TEXT];
    Result result = begin(function);
    if (result != SUCCESS) return result;
    if (!device || index_of(device) >= cards()) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "hang.%s", function);
    sleep((u32)card_number(device, key, 0));
    result = (Result)card_number(device, "error", SUCCESS);
    if (result != SUCCESS) return result;
    snprintf(key, sizeof key, "error.%s", function);
    return (Result)card_number(device, key, SUCCESS);
}

#define BEGIN() do { Result result = begin(__func__); if (result != SUCCESS) return result; } while (0)
#define BEGIN_CARD(device) \
    do { Result result = begin_card(device, __func__); if (result != SUCCESS) return result; } while (0)

/* A function with one number as its answer. */
#define CARD_NUMBER(function, key, otherwise) \
    API Result function(Device device, u32 *out) { \
        BEGIN_CARD(device); \
        *out = (u32)card_number(device, key, otherwise); \
        return SUCCESS; \
    }

/* The library */

API Result nvmlInitWithFlags(u32 flags) {
    Result result = (Result)number("init_error", SUCCESS);
    (void)flags;
    sleep((u32)number("hang.nvmlInitWithFlags", 0));
    if (result == SUCCESS) references++;
    return result;
}

API Result nvmlShutdown(void) {
    BEGIN();
    references--;
    return SUCCESS;
}

API const char *nvmlErrorString(Result result) {
    (void)result;
    return "Unknown Error";
}

API Result nvmlSystemGetDriverVersion(char *out, u32 size) {
    char value[TEXT];
    BEGIN();
    return put_text(look("driver", value) ? value : "580.95.05", out, size);
}

API Result nvmlSystemGetCudaDriverVersion(int *out) {
    BEGIN();
    *out = (int)number("cuda", 13000);
    return SUCCESS;
}

API Result nvmlDeviceGetCount_v2(u32 *out) {
    BEGIN();
    *out = cards();
    return SUCCESS;
}

API Result nvmlDeviceGetHandleByIndex_v2(u32 index, Device *out) {
    *out = (Device)(size_t)(index + 1);
    BEGIN_CARD(*out);
    return SUCCESS;
}

/* A card */

API Result nvmlDeviceGetName(Device device, char *out, u32 size) {
    BEGIN_CARD(device);
    return put_card_text(device, "name", "NVIDIA GeForce RTX 3090", out, size);
}

API Result nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    u64 arch = 0;
    BEGIN_CARD(device);
    arch = card_number(device, "arch", 86);
    *major = (int)(arch / 10);
    *minor = (int)(arch % 10);
    return SUCCESS;
}

API Result nvmlDeviceGetUUID(Device device, char *out, u32 size) {
    char uuid[TEXT];
    BEGIN_CARD(device);
    snprintf(uuid, sizeof uuid, "GPU-5c0f1a2b-0000-4000-8000-%012u", index_of(device));
    return put_card_text(device, "uuid", uuid, out, size);
}

typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } MemoryV2;

/* The older call counts what the driver reserves as used. */
API Result nvmlDeviceGetMemoryInfo(Device device, Memory *out) {
    BEGIN_CARD(device);
    out->total = bytes(device, "total", 24576);
    out->used = bytes(device, "used", 300) + bytes(device, "reserved", 350);
    out->free = out->total - out->used;
    return SUCCESS;
}

API Result nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *out) {
    BEGIN_CARD(device);
    if (out->version != MEMORY_V2) return VERSION_MISMATCH;
    out->total = bytes(device, "total", 24576);
    out->reserved = bytes(device, "reserved", 350);
    out->used = bytes(device, "used", 300);
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}

typedef struct { u32 gpu, memory; } Utilization;

API Result nvmlDeviceGetUtilizationRates(Device device, Utilization *out) {
    BEGIN_CARD(device);
    out->gpu = (u32)card_number(device, "util", 3);
    out->memory = (u32)card_number(device, "memutil", 1);
    return SUCCESS;
}

API Result nvmlDeviceGetTemperature(Device device, u32 sensor, u32 *out) {
    BEGIN_CARD(device);
    if (sensor) return INVALID_ARGUMENT;
    *out = (u32)card_number(device, "temp", 41);
    return SUCCESS;
}

typedef struct { u32 version, sensor; int temperature; } TemperatureV1;

API Result nvmlDeviceGetTemperatureV(Device device, TemperatureV1 *out) {
    BEGIN_CARD(device);
    if (out->version != TEMPERATURE_V1) return VERSION_MISMATCH;
    if (out->sensor) return INVALID_ARGUMENT;
    out->temperature = (int)card_number(device, "temp", 41);
    return SUCCESS;
}

CARD_NUMBER(nvmlDeviceGetPowerUsage, "power", 28500)
CARD_NUMBER(nvmlDeviceGetEnforcedPowerLimit, "powerlimit", 350000)
CARD_NUMBER(nvmlDeviceGetFanSpeed, "fan", 0)
CARD_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pciegen", 4)
CARD_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pciewidth", 8)
CARD_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pciegenmax", 4)
CARD_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pciewidthmax", 16)

API Result nvmlDeviceGetClockInfo(Device device, u32 type, u32 *out) {
    BEGIN_CARD(device);
    *out = (u32)(type == 2 ? card_number(device, "memclock", 405) : card_number(device, "smclock", 210));
    return SUCCESS;
}

/* The real one measures for 20 ms. */
API Result nvmlDeviceGetPcieThroughput(Device device, u32 counter, u32 *out) {
    BEGIN_CARD(device);
    usleep(20000);
    *out = (u32)(counter ? card_number(device, "pcierx", 1200) : card_number(device, "pcietx", 900));
    return SUCCESS;
}

API Result nvmlDeviceGetCurrentClocksThrottleReasons(Device device, u64 *out) {
    BEGIN_CARD(device);
    *out = card_number(device, "throttle", 1);
    return SUCCESS;
}

typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } Process;

static Result list_processes(Device device, const char *kind, u32 *count, Process *out) {
    const char *path = getenv("FAKENVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], prefix[32], *end;
    u32 room = *count, found = 0;
    snprintf(prefix, sizeof prefix, "%u.%s.", index_of(device), kind);
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, prefix, strlen(prefix))) continue;
        u32 pid = (u32)strtoul(line + strlen(prefix), &end, 10);
        if (*end != '=') continue;
        if (out && found < room) {
            out[found].pid = pid;
            out[found].memory = strtoull(end + 1, NULL, 0) << 20;
            out[found].gpu_instance = out[found].compute_instance = ~0u;
        }
        found++;
    }
    if (file) fclose(file);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

API Result nvmlDeviceGetComputeRunningProcesses_v3(Device device, u32 *count, Process *out) {
    BEGIN_CARD(device);
    return list_processes(device, "proc", count, out);
}

API Result nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, u32 *count, Process *out) {
    BEGIN_CARD(device);
    return list_processes(device, "gfx", count, out);
}

/* Errors of memory, of which a card without ECC knows nothing */

API Result nvmlDeviceGetTotalEccErrors(Device device, u32 kind, u32 since, u64 *out) {
    static const char *const keys[2][2] = {{"ecc", "eccever"}, {"uecc", "ueccever"}};
    BEGIN_CARD(device);
    if (!card_number(device, "eccon", 0)) return NOT_SUPPORTED;
    if (kind > 1 || since > 1) return INVALID_ARGUMENT;
    *out = card_number(device, keys[kind][since], 0);
    return SUCCESS;
}

API Result nvmlDeviceGetRemappedRows(
    Device device, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    char key[TEXT], value[TEXT];
    BEGIN_CARD(device);
    snprintf(key, sizeof key, "%u.rows", index_of(device));
    if (!look(key, value)) return NOT_SUPPORTED;
    return sscanf(value, "%u,%u,%u,%u", corrected, uncorrected, pending, failed) == 4 ? SUCCESS : INVALID_ARGUMENT;
}

/* Events: there is one set, and each card remembers what was told of it last */

typedef struct { Device device; u64 type, data; u32 gpu_instance, compute_instance; } Event;

static int events, registered[CARDS];
static char last_told[CARDS][TEXT];

API Result nvmlEventSetCreate(void **out) {
    BEGIN();
    *out = &events;
    return SUCCESS;
}

API Result nvmlEventSetFree(void *set) {
    BEGIN();
    (void)set;
    memset(registered, 0, sizeof registered);
    return SUCCESS;
}

API Result nvmlDeviceRegisterEvents(Device device, u64 types, void *set) {
    BEGIN_CARD(device);
    if (set != &events || types != 8) return INVALID_ARGUMENT;
    registered[index_of(device)] = 1;
    return SUCCESS;
}

API Result nvmlEventSetWait_v2(void *set, Event *out, u32 milliseconds) {
    char key[TEXT], value[TEXT];
    u32 index;
    BEGIN();
    (void)set;
    for (index = 0; index < CARDS; index++) {
        snprintf(key, sizeof key, "%u.xid", index);
        if (!registered[index] || !look(key, value) || !strcmp(value, last_told[index])) continue;
        strcpy(last_told[index], value);
        out->device = (Device)(size_t)(index + 1);
        out->type = 8;
        out->data = strtoull(value, NULL, 0);
        out->gpu_instance = out->compute_instance = ~0u;
        return SUCCESS;
    }
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
