// The input of clang-tidy: every header of the umbrella, and one complete engine, because the
// analyzer follows only what is instantiated.

#include <zero/zero.hpp>

#if __has_include(<nlohmann/json.hpp>) && __has_include(<xxhash.h>)
#include <zero/checkpoint/checkpoint.hpp>
#endif
#if __has_include(<mpi.h>)
#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>
#endif

using Composition =
    zero::ZeroStage<3, zero::Parameters<zero::bfloat16>, zero::RoundRobinPartitioner,
                    zero::DynamicLossScaler, zero::SplitMasterWeights>::Composition;
template class zero::Engine<Composition::EngineConfig>;
