// A Vulkan layer that records the machine code of each compute pipeline: statistics, assembly, compile time.
// cc -O1 -shared -fPIC -I DRIVERS/usr/include -o libisa_layer.so layer.c      (DRIVERS: the folder of .ci/gpu-drivers)
// It enables VK_KHR_pipeline_executable_properties in any process (wgpu, Dawn, a browser) and appends one record per
// pipeline to the file $ISA_OUT. Records are JSON lines; $ISA_TEXT=1 adds the driver's assembly, $ISA_UNCHECKED=1
// disables the driver's bounds checks of buffers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pthread.h>
#include <vulkan/vulkan.h>
#include <vulkan/vk_layer.h>

#define EXPORT __attribute__((visibility("default")))
#define LAYER "VK_LAYER_CAMELID_isa"

static PFN_vkGetInstanceProcAddr next_gipa;
static PFN_vkGetDeviceProcAddr next_gdpa;
static VkInstance the_instance;
static struct {
  PFN_vkCreateComputePipelines create;
  PFN_vkGetPipelineExecutablePropertiesKHR properties;
  PFN_vkGetPipelineExecutableStatisticsKHR statistics;
  PFN_vkGetPipelineExecutableInternalRepresentationsKHR texts;
} call;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void put_text(FILE *f, const char *s, size_t n) {
  fputc('"', f);
  for (size_t i = 0; i < n && s[i]; i++) {
    unsigned char c = s[i];
    if (c == '"' || c == '\\') fprintf(f, "\\%c", c);
    else if (c == '\n') fputs("\\n", f);
    else if (c < 32 || c > 126) fprintf(f, "\\u%04x", c < 32 ? c : '?');
    else fputc(c, f);
  }
  fputc('"', f);
}

static void put_executable(FILE *f, VkDevice device, VkPipeline pipeline, uint32_t i, VkPipelineExecutablePropertiesKHR *p) {
  VkPipelineExecutableInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, 0, pipeline, i};
  fprintf(f, "{\"name\":");
  put_text(f, p->name, sizeof p->name);
  fprintf(f, ",\"subgroup\":%u,\"stats\":{", p->subgroupSize);
  uint32_t n = 0;
  call.statistics(device, &info, &n, 0);
  VkPipelineExecutableStatisticKHR *s = calloc(n ? n : 1, sizeof *s);
  for (uint32_t k = 0; k < n; k++) s[k].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  call.statistics(device, &info, &n, s);
  for (uint32_t k = 0; k < n; k++) {
    if (k) fputc(',', f);
    put_text(f, s[k].name, sizeof s[k].name);
    if (s[k].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR) fprintf(f, ":%g", s[k].value.f64);
    else if (s[k].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR) fprintf(f, ":%u", s[k].value.b32);
    else fprintf(f, ":%lld", (long long)s[k].value.i64);
  }
  free(s);
  fprintf(f, "},\"texts\":[");
  if (getenv("ISA_TEXT")) {
    n = 0;
    call.texts(device, &info, &n, 0);
    VkPipelineExecutableInternalRepresentationKHR *r = calloc(n ? n : 1, sizeof *r);
    for (uint32_t k = 0; k < n; k++) r[k].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    call.texts(device, &info, &n, r);
    for (uint32_t k = 0; k < n; k++) r[k].pData = calloc(r[k].dataSize + 1, 1);
    call.texts(device, &info, &n, r);
    for (uint32_t k = 0; k < n; k++) {
      fprintf(f, k ? ",[" : "[");
      put_text(f, r[k].name, sizeof r[k].name);
      fputc(',', f);
      put_text(f, r[k].isText ? r[k].pData : "(binary)", r[k].isText ? r[k].dataSize : 8);
      fputc(']', f);
      free(r[k].pData);
    }
    free(r);
  }
  fprintf(f, "]}");
}

static void put_pipeline(VkDevice device, VkPipeline pipeline, double ms) {
  const char *path = getenv("ISA_OUT");
  if (!path || !call.properties) return;
  VkPipelineInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, 0, pipeline};
  uint32_t n = 0;
  call.properties(device, &info, &n, 0);
  VkPipelineExecutablePropertiesKHR *p = calloc(n ? n : 1, sizeof *p);
  for (uint32_t i = 0; i < n; i++) p[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
  call.properties(device, &info, &n, p);
  pthread_mutex_lock(&lock);
  FILE *f = fopen(path, "a");
  fprintf(f, "{\"ms\":%.3f,\"executables\":[", ms);
  for (uint32_t i = 0; i < n; i++) {
    if (i) fputc(',', f);
    put_executable(f, device, pipeline, i, &p[i]);
  }
  fprintf(f, "]}\n");
  fclose(f);
  fflush(stdout);  // where Mesa's Apple driver prints its listing, which Node's exit would lose
  pthread_mutex_unlock(&lock);
  free(p);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(
    VkDevice device, VkPipelineCache cache, uint32_t n, const VkComputePipelineCreateInfo *infos,
    const VkAllocationCallbacks *a, VkPipeline *out) {
  VkResult result = VK_SUCCESS;
  for (uint32_t i = 0; i < n; i++) {
    VkComputePipelineCreateInfo info = infos[i];
    info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    if (getenv("ISA_TEXT")) info.flags |= VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    double start = now_ms();
    VkResult r = call.create(device, VK_NULL_HANDLE, 1, &info, a, &out[i]);
    if (r != VK_SUCCESS) result = r;
    else put_pipeline(device, out[i], now_ms() - start);
  }
  return result;
}

static VkLayerInstanceCreateInfo *instance_link(const VkInstanceCreateInfo *info) {
  VkLayerInstanceCreateInfo *c = (VkLayerInstanceCreateInfo *)info->pNext;
  while (c && !(c->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO && c->function == VK_LAYER_LINK_INFO))
    c = (VkLayerInstanceCreateInfo *)c->pNext;
  return c;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(
    const VkInstanceCreateInfo *info, const VkAllocationCallbacks *a, VkInstance *out) {
  VkLayerInstanceCreateInfo *link = instance_link(info);
  next_gipa = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  PFN_vkCreateInstance create = (PFN_vkCreateInstance)next_gipa(0, "vkCreateInstance");
  VkResult r = create(info, a, out);
  if (r == VK_SUCCESS) the_instance = *out;
  return r;
}

// Bounds checks of buffers by the driver: some of Mesa's drivers do them word by word, which vendors' do not.
static void switch_checks_off(VkDeviceCreateInfo *info) {
  if (info->pEnabledFeatures) ((VkPhysicalDeviceFeatures *)info->pEnabledFeatures)->robustBufferAccess = VK_FALSE;
  for (VkBaseOutStructure *s = (VkBaseOutStructure *)info->pNext; s; s = s->pNext) {
    if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)
      ((VkPhysicalDeviceFeatures2 *)s)->features.robustBufferAccess = VK_FALSE;
    if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT)
      ((VkPhysicalDeviceRobustness2FeaturesEXT *)s)->robustBufferAccess2 = VK_FALSE;
  }
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(
    VkPhysicalDevice physical, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *a, VkDevice *out) {
  VkLayerDeviceCreateInfo *link = (VkLayerDeviceCreateInfo *)info->pNext;
  while (link && !(link->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO && link->function == VK_LAYER_LINK_INFO))
    link = (VkLayerDeviceCreateInfo *)link->pNext;
  PFN_vkGetInstanceProcAddr gipa = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  next_gdpa = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  PFN_vkCreateDevice create = (PFN_vkCreateDevice)gipa(the_instance, "vkCreateDevice");
  if (getenv("ISA_UNCHECKED")) switch_checks_off((VkDeviceCreateInfo *)info);
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR on = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, (void *)info->pNext, VK_TRUE};
  VkDeviceCreateInfo more = *info;
  const char **names = calloc(info->enabledExtensionCount + 1, sizeof *names);
  for (uint32_t i = 0; i < info->enabledExtensionCount; i++) names[i] = info->ppEnabledExtensionNames[i];
  names[more.enabledExtensionCount++] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
  more.ppEnabledExtensionNames = names;
  more.pNext = &on;
  VkResult r = create(physical, &more, a, out);
  if (r != VK_SUCCESS) return r;
  call.create = (PFN_vkCreateComputePipelines)next_gdpa(*out, "vkCreateComputePipelines");
#define GET(field, name) call.field = (PFN_vkGetPipelineExecutable##name##KHR)next_gdpa(*out, "vkGetPipelineExecutable" #name "KHR")
  GET(properties, Properties);
  GET(statistics, Statistics);
  GET(texts, InternalRepresentations);
  return r;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL isa_gdpa(VkDevice device, const char *name) {
  if (!strcmp(name, "vkCreateComputePipelines")) return (PFN_vkVoidFunction)create_pipelines;
  if (!strcmp(name, "vkGetDeviceProcAddr")) return (PFN_vkVoidFunction)isa_gdpa;
  return next_gdpa ? next_gdpa(device, name) : 0;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL isa_gipa(VkInstance instance, const char *name) {
  if (!strcmp(name, "vkCreateInstance")) return (PFN_vkVoidFunction)create_instance;
  if (!strcmp(name, "vkCreateDevice")) return (PFN_vkVoidFunction)create_device;
  if (!strcmp(name, "vkGetInstanceProcAddr")) return (PFN_vkVoidFunction)isa_gipa;
  if (!strcmp(name, "vkGetDeviceProcAddr")) return (PFN_vkVoidFunction)isa_gdpa;
  return next_gipa ? next_gipa(instance, name) : 0;
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *v) {
  v->loaderLayerInterfaceVersion = 2;
  v->pfnGetInstanceProcAddr = isa_gipa;
  v->pfnGetDeviceProcAddr = isa_gdpa;
  v->pfnGetPhysicalDeviceProcAddr = 0;
  return VK_SUCCESS;
}
