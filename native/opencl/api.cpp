// Looking up OpenCL's functions (api.hpp).
#include "opencl/api.hpp"

#include <dlfcn.h>

#include <cstring>

namespace hcq::opencl {

namespace {
Api g_api;

template <typename F>
bool find(void* library, const char* name, F* out, std::string* error) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  if (!*out) *error = std::string("the OpenCL loader has no ") + name + ": OpenCL 2.0 or later is needed";
  return *out != nullptr;
}

struct Named {
  Status status;
  const char* name;
};
constexpr Named kNames[] = {
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-30, "CL_INVALID_VALUE"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-37, "CL_INVALID_HOST_PTR"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-39, "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR"},
    {-40, "CL_INVALID_IMAGE_SIZE"},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {-48, "CL_INVALID_KERNEL"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-58, "CL_INVALID_EVENT"},
    {-59, "CL_INVALID_OPERATION"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-65, "CL_INVALID_IMAGE_DESCRIPTOR"},
};
}  // namespace

const Api& api() { return g_api; }

namespace {
Api g_found;  // what was looked up
Status g_answer = kSuccess;
bool g_for_good = false;

template <auto member>
struct Refusal;
template <typename... Arguments, Status (*Api::*member)(Arguments...)>
struct Refusal<member> {
  static Status answer(Arguments...) {
    if (!g_for_good) g_api.*member = g_found.*member;
    return g_answer;
  }
};

Status state_of_failed(Handle event, uint32_t what, size_t size, void* value, size_t* actual) {
  // What failed has ended: until the command has, its memory is in use.
  Status state = kComplete;
  if (g_found.clGetEventInfo(event, what, sizeof state, &state, nullptr) == kSuccess && state > kComplete)
    return g_found.clGetEventInfo(event, what, size, value, actual);
  if (!g_for_good) g_api.clGetEventInfo = g_found.clGetEventInfo;
  std::memcpy(value, &g_answer, sizeof g_answer);
  return kSuccess;
}
}  // namespace

bool fail(const std::string& function, Status status) {
  if (!g_found.clFlush) g_found = g_api;
  g_api = g_found;
  g_answer = status;
  g_for_good = function.empty();
  if (status == kSuccess) return true;
  bool known = false;
  auto with = [&](const char* name, auto member, auto stub) {
    if (!function.empty() && function != name) return;
    g_api.*member = stub;
    known = true;
  };
  with("clSetKernelArg", &Api::clSetKernelArg, Refusal<&Api::clSetKernelArg>::answer);
  with("clSetKernelArgSVMPointer", &Api::clSetKernelArgSVMPointer, Refusal<&Api::clSetKernelArgSVMPointer>::answer);
  with("clEnqueueNDRangeKernel", &Api::clEnqueueNDRangeKernel, Refusal<&Api::clEnqueueNDRangeKernel>::answer);
  with("clEnqueueSVMMemcpy", &Api::clEnqueueSVMMemcpy, Refusal<&Api::clEnqueueSVMMemcpy>::answer);
  with("clEnqueueReadImage", &Api::clEnqueueReadImage, Refusal<&Api::clEnqueueReadImage>::answer);
  with("clEnqueueWriteImage", &Api::clEnqueueWriteImage, Refusal<&Api::clEnqueueWriteImage>::answer);
  with("clEnqueueCopyImage", &Api::clEnqueueCopyImage, Refusal<&Api::clEnqueueCopyImage>::answer);
  with("clEnqueueMarkerWithWaitList", &Api::clEnqueueMarkerWithWaitList,
       Refusal<&Api::clEnqueueMarkerWithWaitList>::answer);
  with("clGetEventInfo", &Api::clGetEventInfo, state_of_failed);
  return known;
}

bool load(const char* library, std::string* error) {
  void* from = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // stays: OpenCL implementations can't be unloaded
  if (!from) {
    *error = dlerror();
    return false;
  }
  Api a;
#define HCQ_FIND(name) find(from, #name, &a.name, error)
  bool found = HCQ_FIND(clCreateCommandQueueWithProperties) && HCQ_FIND(clReleaseCommandQueue) &&
               HCQ_FIND(clRetainContext) && HCQ_FIND(clReleaseContext) && HCQ_FIND(clRetainKernel) &&
               HCQ_FIND(clReleaseKernel) && HCQ_FIND(clSetKernelArg) && HCQ_FIND(clSetKernelArgSVMPointer) &&
               HCQ_FIND(clEnqueueNDRangeKernel) && HCQ_FIND(clEnqueueSVMMemcpy) && HCQ_FIND(clFlush) &&
               HCQ_FIND(clGetEventInfo) && HCQ_FIND(clGetEventProfilingInfo) && HCQ_FIND(clSetEventCallback) &&
               HCQ_FIND(clReleaseEvent) && HCQ_FIND(clEnqueueMarkerWithWaitList) && HCQ_FIND(clCreateImage) &&
               HCQ_FIND(clReleaseMemObject) && HCQ_FIND(clEnqueueReadImage) && HCQ_FIND(clEnqueueWriteImage) &&
               HCQ_FIND(clEnqueueCopyImage);
#undef HCQ_FIND
  if (found) g_api = a;
  return found;
}

std::string status_name(Status status) {
  std::string number = "(" + std::to_string(status) + ")";
  for (const Named& each : kNames)
    if (each.status == status) return each.name + (" " + number);
  return "OpenCL's error " + number;
}

bool failed(Status status, const char* what, std::string* error) {
  if (status == kSuccess) return false;
  *error = std::string(what) + " gave " + status_name(status);
  return true;
}

}  // namespace hcq::opencl
