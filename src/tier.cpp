#include <zero/tier/detail/checksum.ipp>
#include <zero/tier/detail/file_calls.ipp>
#include <zero/tier/detail/file_tier.ipp>
