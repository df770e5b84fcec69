#if __has_include(<torch/csrc/distributed/c10d/Backend.hpp>)
#include <zero/torch/detail/group_records.ipp>
#include <zero/torch/detail/process_group_collectives.ipp>
#endif
#include <zero/torch/detail/gradient_hooks.ipp>
#include <zero/torch/detail/module_tensors.ipp>
#include <zero/torch/detail/unit_runner.ipp>
