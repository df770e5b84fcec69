// A program of one process, which needs no mpirun.

#include <zero/core/version.hpp>
#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>
#include <zero/zero.hpp>

#include <cstdio>

int main() {
    zero::mpi::Session const session;
    zero::mpi::Communicator communicator(session.world());
    using Zero = zero::ZeroStage<2, zero::AdamW, zero::mpi::Communicator>;
    Zero engine(communicator, {{.name = "weight", .elements = 3, .units = {0}}});
    if (communicator.size() != 1 || engine.layout().world() != 1) {
        return 1;
    }
    std::printf("zero %d.%d.%d\n", zero::version_major, zero::version_minor, zero::version_patch);
    return 0;
}
