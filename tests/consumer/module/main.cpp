// A unit that imports the module and one that includes the header train to the same bits, in one
// program.

#include <zero/core/version.hpp>

#include <cstdio>
#include <cstring>
#include <vector>

std::vector<float> train_imported(int ranks);
std::vector<float> train_included(int ranks);

int main() {
    for (int const ranks : {1, 2, 3}) {
        std::vector<float> const imported = train_imported(ranks);
        std::vector<float> const included = train_included(ranks);
        if (imported.size() != 133 || imported[0] == 0.0F || included.size() != imported.size()
            || std::memcmp(imported.data(), included.data(), 133 * sizeof(float)) != 0) {
            std::printf("%d ranks: a unit that imports the module trains to other bits\n", ranks);
            return 1;
        }
    }
    std::printf("zero %d.%d.%d\n", zero::version_major, zero::version_minor, zero::version_patch);
}
