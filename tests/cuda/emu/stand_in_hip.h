/* stand_in_hip: HIP's names for the stand-in's functions, and those whose arguments differ. */
#pragma once
#define SAME(hip, cuda) extern "C" decltype(cuda) hip __attribute__((alias(#cuda)))
SAME(hipInit, cuInit);
SAME(hipDriverGetVersion, cuDriverGetVersion);
SAME(hipGetDeviceCount, cuDeviceGetCount);
SAME(hipDeviceGet, cuDeviceGet);
SAME(hipDeviceGetName, cuDeviceGetName);
SAME(hipDeviceTotalMem, cuDeviceTotalMem_v2);
SAME(hipMemGetInfo, cuMemGetInfo_v2);
SAME(hipMalloc, cuMemAlloc_v2);
SAME(hipFree, cuMemFree_v2);
SAME(hipHostMalloc, cuMemHostAlloc);
SAME(hipHostFree, cuMemFreeHost);
SAME(hipMemsetD8Async, cuMemsetD8Async);
SAME(hipStreamCreateWithFlags, cuStreamCreate);
SAME(hipStreamDestroy, cuStreamDestroy_v2);
SAME(hipStreamSynchronize, cuStreamSynchronize);
SAME(hipStreamBeginCapture, cuStreamBeginCapture_v2);
SAME(hipStreamEndCapture, cuStreamEndCapture);
SAME(hipModuleLoadData, cuModuleLoadData);
SAME(hipModuleUnload, cuModuleUnload);
SAME(hipModuleGetFunction, cuModuleGetFunction);
SAME(hipModuleLaunchKernel, cuLaunchKernel);
SAME(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags);
SAME(hipGraphDestroy, cuGraphDestroy);
SAME(hipGraphExecDestroy, cuGraphExecDestroy);
SAME(hipGraphLaunch, cuGraphLaunch);
SAME(hipEventCreateWithFlags, cuEventCreate);
SAME(hipEventQuery, cuEventQuery);
SAME(hipEventDestroy, cuEventDestroy_v2);
SAME(hipEventRecord, cuEventRecord);
SAME(hipEventSynchronize, cuEventSynchronize);
SAME(hipStreamWaitEvent, cuStreamWaitEvent);
SAME(hipDeviceCanAccessPeer, cuDeviceCanAccessPeer);
SAME(hipDrvGetErrorString, cuGetErrorString);

extern "C" {
int hipSetDevice(int device) { return device < N_DEVICES ? (current = device, OK) : INVALID_DEVICE; }
int hipDeviceEnablePeerAccess(int, unsigned) { return PEER_ENABLED; }
int hipDeviceGetAttribute(int *value, int attribute, int) {
    const std::map<int, int> known = {{87, arch("gfx90a").compare(0, 4, "gfx9") ? 32 : 64}, {5, 1000000}, {63, 4}};
    return *value = known.count(attribute) ? known.at(attribute) : 0, OK;
}
int hipMemcpyAsync(void *to, const void *from, size_t n, int kind, Stream *s) {
    return kind == 4 ? cuMemcpyAsync(to, from, n, s) : INVALID_VALUE;
}
int hipGetDevicePropertiesR0600(char *properties, int) {
    memset(properties, 0, 1472);
    return strcpy(properties + 1160, (arch("gfx90a") + ":sramecc+:xnack-").c_str()), OK;
}
}
