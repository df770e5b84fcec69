#include <zero/core/detail/host_memory_resource.ipp>
#include <zero/core/detail/text.ipp>
#include <zero/core/detail/timeline.ipp>
#include <zero/core/detail/write_timelines.ipp>
