// Reads the descriptions of kernels in a cubin: ELF with sections `.text.NAME`, `.nv.info.NAME`
// (sizes of the arguments and maximum number of threads) and `.nv.shared.NAME` for each, and the
// registers in `.nv.info` (see `cuobjdump -elf`).
#pragma once
#include <cstring>
#include <elf.h>

#include "state.h"

namespace fake {

// Reserved by CUDA in every block on sm_90; the section includes it, the limit does not count it.
constexpr unsigned RESERVED_SHARED = 1024;

struct Image {
    const char *start;
    const Elf64_Ehdr *header;

    explicit Image(const char *start) : start(start), header((const Elf64_Ehdr *)start) {}

    bool is_cubin() const {
        const unsigned char magic[] = {0x7f, 'E', 'L', 'F', ELFCLASS64};
        // EM_CUDA
        return memcmp(start, magic, sizeof magic) == 0 && header->e_machine == 190;
    }
    size_t bytes() const {
        const size_t sections = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
        const size_t segments = header->e_phoff + (size_t)header->e_phnum * header->e_phentsize;
        return std::max(sections, segments);
    }
    const Elf64_Shdr *section(size_t at) const { return (const Elf64_Shdr *)(start + header->e_shoff) + at; }
    const Elf64_Shdr *section(const std::string &name) const {
        const char *names = start + section(header->e_shstrndx)->sh_offset;
        for (size_t at = 0; at < header->e_shnum; at++) {
            if (name == names + section(at)->sh_name) return section(at);
        }
        return nullptr;
    }
    // Calls `with` with each attribute's number, contents and their bytes.
    template <typename With> void attributes(const std::string &name, With with) const {
        const Elf64_Shdr *info = section(name);
        if (!info) return;
        const char *at = start + info->sh_offset, *end = at + info->sh_size;
        while (at + 4 <= end) {
            uint16_t length;
            memcpy(&length, at + 2, 2);
            // The fourth format has contents of that length behind its head.
            if (at[0] != 4) length = 0;
            with((unsigned char)at[1], at + 4, length);
            at += 4 + length;
        }
    }
    uint32_t word(const char *at) const {
        uint32_t word;
        memcpy(&word, at, 4);
        return word;
    }

    bool describe(const std::string &name, Function &function) const {
        if (!section(".text." + name)) return false;
        function.name = name;
        function.most_threads = 1024;
        std::map<unsigned, size_t> sizes;
        attributes(".nv.info." + name, [&](unsigned attribute, const char *at, size_t length) {
            // EIATTR_KPARAM_INFO: index, ordinal, offset, and the size in the highest bits of the
            // last word.
            if (attribute == 0x17 && length == 12) sizes[word(at + 4) & 0xFFFF] = word(at + 8) >> 18;
            // EIATTR_MAX_THREADS: in each dimension.
            if (attribute == 0x05 && length == 12) function.most_threads = word(at) * word(at + 4) * word(at + 8);
        });
        for (const auto &size : sizes) function.sizes.push_back(size.second);
        const Elf64_Shdr *symbols = section(".symtab"), *names = section(".strtab");
        function.registers = 0;
        attributes(".nv.info", [&](unsigned attribute, const char *at, size_t length) {
            // EIATTR_REGCOUNT: the kernel's symbol, and the registers per thread.
            if (attribute != 0x2f || length != 8) return;
            const Elf64_Sym *symbol = (const Elf64_Sym *)(start + symbols->sh_offset) + word(at);
            if (name == start + names->sh_offset + symbol->st_name) function.registers = word(at + 4);
        });
        const Elf64_Shdr *shared = section(".nv.shared." + name);
        function.shared = shared && shared->sh_size > RESERVED_SHARED ? shared->sh_size - RESERVED_SHARED : 0;
        return true;
    }
};

} // namespace fake
