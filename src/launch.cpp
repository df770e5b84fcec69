#include <zero/launch/detail/environment.ipp>
#include <zero/launch/detail/variables.ipp>
