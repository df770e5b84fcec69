#include <cstdio>

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/core/version.hpp>

int main() {
    zero::Manifest const manifest = zero::Manifest::from_json(zero::Manifest{}.to_json(), "memory");
    std::printf("zero %d.%d.%d\n", zero::version_major, zero::version_minor,
                zero::version_patch + static_cast<int>(manifest.files.size()));
}
